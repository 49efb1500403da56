"""Backends of version 1 of the contract, kept as they were certified: they run, or refuse by name.

``tests/data/version_1`` holds two of them, and what the first one answered with core of that time.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any, cast

import pytest

import core
from core.kit.support import refuse_options
from core.moved import MOVED
from core.older import OlderModel, adapted
from core.registry import REGISTRY

DATA = Path(__file__).parent / "data" / "version_1"
ANSWERS = json.loads((DATA / "answers.json").read_text("utf-8"))
PROMPTS = ["The price of bread", "Shares fell.", "naïve café"]
CHAT = [core.Message("user", "hello")]


def imported(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DATA / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the modules that have moved
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(REGISTRY, "_registered", {})
    core.register(imported("older_backend").Older())
    (tmp_path / "config.json").write_text('{"model_type": "older"}')
    (tmp_path / "model.safetensors").touch()
    with core.load_model(tmp_path, backend="older") as loaded:
        yield loaded


def test_it_answers_as_it_did(model: Any) -> None:
    assert [model.generate(p, max_tokens=12).text() for p in PROMPTS] == ANSWERS["generate"]
    stop = ANSWERS["generate"][0][4:6]
    stopped = [token.text for token in model.generate(PROMPTS[0], max_tokens=12, stop=(stop,))]
    assert stopped == ANSWERS["stopped"]
    rows = model.batch_generate(PROMPTS, max_tokens=5)
    assert [[row.text, row.finish_reason] for row in rows] == ANSWERS["batch_generate"]
    results = model.classify(PROMPTS, labels=["sports", "finance"])
    found = [[r.label, round(r.logprobs["sports"], 9), r.token.id] for r in results]
    assert found == ANSWERS["classify"]
    scores = model.score(PROMPTS, [" and", " x", "!"])
    assert [[round(each.logprob, 9), each.is_greedy] for each in scores] == ANSWERS["score"]


def test_its_streams_have_what_came_later(model: Any) -> None:
    stream = model.generate(PROMPTS[0], max_tokens=12)
    assert next(stream).text == "D"
    assert stream.text() == ANSWERS["generate"][0]
    assert stream.to_dict()["finish_reason"] == stream.finish_reason == "length"
    assert stream.metrics.generated_tokens == 12
    stream = model.generate(PROMPTS[0])
    stream.close()
    assert stream.finish_reason == "cancelled"


def test_it_is_what_it_declares(model: Any) -> None:
    kind: object = model
    assert isinstance(kind, core.Scoring)
    assert not isinstance(kind, core.Tokenizing | core.Submitting | core.HiddenStates)
    assert (model.model_type, model.info.vocab_size) == ("older", 129)
    with pytest.raises(core.UnsupportedOperationError):
        model.chat(CHAT)
    model.close()
    with pytest.raises(core.ModelClosedError):
        model.classify(PROMPTS)


LATER: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("generate", ("a",), {"typical_p": 0.5}),
    ("batch_generate", (["a"],), {"typical_p": 0.5}),
    ("classify", (["a"],), {"typical_p": 0.5}),
    ("chat", (CHAT,), {"typical_p": 0.5}),
    ("chat", (CHAT,), {"chat_template_kwargs": {"enable_thinking": False}}),
    ("chat", (CHAT,), {"continue_final_message": True}),
    ("score", (["a"], ["b"]), {"timeout": 5.0}),
    ("score", (["a"], ["b"]), {"cancel": Event()}),
]


@pytest.mark.parametrize("as_config", [False, True])
@pytest.mark.parametrize(("operation", "arguments", "later"), LATER)
def test_what_came_later_is_refused_by_name(
    model: Any, operation: str, arguments: tuple[Any, ...], later: dict[str, Any], as_config: bool
) -> None:
    if as_config:
        arguments, later_options = (*arguments, core.GenerateConfig(**later)), {}
    else:
        later_options = later
    with pytest.raises(core.UnsupportedOptionError) as refused:
        getattr(model, operation)(*arguments, **later_options)
    assert (refused.value.option, refused.value.backend) == (next(iter(later)), "older")


def test_a_keyword_corrects_the_config(model: Any) -> None:
    config = core.GenerateConfig(typical_p=0.5, max_tokens=12)
    assert model.generate(PROMPTS[0], config, typical_p=1.0).text() == ANSWERS["generate"][0]


def test_what_came_later_and_asks_for_nothing_passes(model: Any) -> None:
    nothing = core.GenerateConfig(typical_p=1.0, chat_template_kwargs={}, max_tokens=12)
    assert model.generate(PROMPTS[0], nothing).text() == ANSWERS["generate"][0]
    assert model.score(["a"], ["b"], nothing, timeout=None) == model.score(["a"], ["b"])
    with pytest.raises(TypeError, match="no option 'heat'"):
        model.generate("a", heat=1)


def test_the_template_of_that_time_runs_and_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It states core's own number, whatever that is, and lists what it does not honour.
    monkeypatch.setattr(REGISTRY, "_registered", {})
    core.register(imported("template_backend").Template())
    (tmp_path / "config.json").write_text('{"model_type": "template"}')
    with core.load_model(tmp_path, backend="template") as model:
        [result] = model.classify(["hello"])
        assert result.token == core.Token(ord("l"), "l")
        with pytest.raises(core.UnsupportedOptionError, match="typical_p"):
            model.classify(["hello"], typical_p=0.5)


def test_an_option_is_let_through_by_who_names_it_alone() -> None:
    config = core.GenerateConfig(typical_p=0.5)
    generate = core.Capability.GENERATE
    refuse_options(config, generate, "new", (), honours=("typical_p",))
    with pytest.raises(core.UnsupportedOptionError, match="typical_p"):
        refuse_options(config, generate, "old", ())


def test_a_backend_of_this_version_is_not_wrapped(tmp_path: Path) -> None:
    class Today(cast("type", imported("older_backend").Older)):  # type: ignore[misc]
        protocol = core.PROTOCOL_VERSION

    (tmp_path / "config.json").write_text('{"model_type": "older"}')
    model = Today().load_model(tmp_path, core.LoadConfig())
    assert not isinstance(adapted(model, Today()), OlderModel)


@pytest.mark.parametrize("protocol", [0, 3, "1", True, None, 1.0])
def test_other_versions_are_refused_with_both_numbers(protocol: object) -> None:
    class Strange(cast("type", imported("older_backend").Older)):  # type: ignore[misc]
        name = "strange"

    Strange.protocol = protocol
    core.register(Strange())
    try:
        with pytest.raises(core.ProtocolMismatchError, match=f"{protocol} .* version 2"):
            core.get_backend("strange")
    finally:
        del REGISTRY._registered["strange"]


@pytest.mark.parametrize("old", sorted(MOVED))
def test_a_moved_module_leads_to_its_new_place(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} has moved to"):
        module = importlib.import_module(old)
    new = MOVED[old]
    assert module is sys.modules[new]
    assert module.__spec__ is not None
    assert module.__spec__.name == new
    del sys.modules[old]


@pytest.mark.parametrize("old", ["core.serving", "core.serving.owner"])
def test_what_has_left_core_is_an_error_with_its_new_place(old: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"core\.serving has moved to core_runtime"):
        importlib.import_module(old)


def test_other_modules_are_not_there_as_always() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'core\.nothing'"):
        importlib.import_module("core.nothing")
