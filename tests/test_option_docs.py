"""``help()`` names the options of every entry point, in every backend."""

from __future__ import annotations

import dataclasses
import importlib
import pydoc
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import core
from core.options import (
    ClassifyOptions,
    GenerateOptions,
    LoadOptions,
    RequestOptions,
    options_named,
)
from core.testing import FakeModel
from core_conformance.reference.optional import ReferenceModel
from core_llama_cpp.model import LlamaModel
from core_mlx_lm_bridge.model import BridgeModel
from core_mlx_native.cpu.blas import ensure_blas

ensure_blas()  # before the first import of mlx in this process, which the other tests share
MlxModel = importlib.import_module("core_mlx_native.model").MlxModel
OpenVinoModel = importlib.import_module("core_openvino.model").OpenVinoModel

OPTIONS = {
    "generate": GenerateOptions,
    "chat": GenerateOptions,
    "batch_generate": GenerateOptions,
    "batch_stream": GenerateOptions,
    "generate_tokens": GenerateOptions,
    "stream_tokens": GenerateOptions,
    "score_tokens": RequestOptions,
    "classify": ClassifyOptions,
    "classify_iter": ClassifyOptions,
    "score": RequestOptions,
    "hidden_states": RequestOptions,
    "inspect_attention": RequestOptions,
}
PROTOCOLS = core.TextModel, core.BatchStreaming, core.ClassifyStreaming, core.Scoring
READERS = core.TokenPrompts, core.HiddenStates, core.AttentionInspector
MODELS = (
    *(FakeModel, core.aio.AsyncModel, ReferenceModel),
    *(MlxModel, LlamaModel, BridgeModel, OpenVinoModel),
)


def entry_points() -> Iterator[Any]:
    yield pytest.param(core.load_model, LoadOptions, id="load_model")
    for owner in (
        *MODELS,
        *PROTOCOLS,
        core.TokenPrompts,
        core.HiddenStates,
        core.AttentionInspector,
    ):
        for name, options in OPTIONS.items():
            if hasattr(owner, name):
                id = f"{owner.__name__}.{name}"
                yield pytest.param(getattr(owner, name), options, id=id)


@pytest.mark.parametrize(
    ("function", "options"),
    list(entry_points()),
    ids=lambda each: getattr(each, "__qualname__", ""),
)
def test_help_names_every_option_and_its_default(function: Any, options: type) -> None:
    config = core.LoadConfig if options is LoadOptions else core.GenerateConfig
    shown = " ".join(pydoc.plain(pydoc.render_doc(function)).split())
    for name in options.__annotations__:
        assert f" {name}={getattr(config(), name)!r}" in shown
    assert shown.count("Options, with their defaults") == 1


@pytest.mark.parametrize("config", [core.GenerateConfig, core.LoadConfig])
def test_the_config_says_what_each_of_them_means(config: Any) -> None:
    for field in dataclasses.fields(config):
        assert re.search(rf"``{field.name}(=\S+)?``", config.__doc__), field.name


def test_a_model_of_somebody_else_is_documented_too() -> None:
    class Mixin:
        def classify_iter(self, prompts: Any, **options: core.ClassifyOptions) -> Any:
            """Not by `Unpack`: these are no options."""

        def score(self, *texts: Any, **options: Any) -> Any:
            """Scores."""

    class Theirs(Mixin, core.TextModelBase):
        def generate(self, prompt: str, *config: Any, **options: Any) -> Any:
            """Does something.

                in code

            And more.
            """

        generate.__annotations__["options"] = "typing.Unpack[core.options.GenerateOptions]"

    assert Theirs.score.__doc__ == "Scores."
    assert "temperature" not in str(Theirs.classify_iter.__doc__)
    lines = pydoc.getdoc(Theirs.generate).splitlines()
    assert lines[:5] == ["Does something.", "", "    in code", "", "And more."]
    assert lines[6].startswith("Options, with their defaults: max_tokens=256, ")


def test_without_a_docstring_nothing_is_added() -> None:
    def bare(**options: Any) -> None: ...

    bare.__annotations__["options"] = "Unpack[GenerateOptions]"
    assert options_named(bare).__doc__ is None
    code = "import core; assert core.load_model.__doc__ is None; print(core.TextModelBase)"
    run = subprocess.run(
        [sys.executable, "-OO", "-c", code], check=True, capture_output=True, text=True
    )
    assert "TextModelBase" in run.stdout
