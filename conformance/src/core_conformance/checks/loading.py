"""Checks of loading a model, and of loads that fail."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import (
    InvalidOptionError,
    ModelError,
    ModelNotFoundError,
    OptionError,
    PromptTooLongError,
    UnsupportedOptionError,
)
from core.models.discovery import described_by
from core.models.files import resolve_path
from core.protocols import Capability, TextModel
from core.types import ModelInfo
from core_conformance.checking.calls import PROMPTS, at, ending, must_raise, promptly, raised
from core_conformance.checking.check import check, must
from core_conformance.checking.imitations import imitations
from core_conformance.checking.scratch import scratch
from core_conformance.checking.subject import Subject

_SMALL_CONTEXT = 48  # tokens
_AT_ONCE = 10.0  # seconds, in which headers are read on any machine
_NOT_UTF8 = "/mod\udce8le"


@check(
    "loading.missing-path",
    "A path where nothing is MUST raise ModelNotFoundError.",
)
def missing_path(subject: Subject) -> None:
    with scratch() as folder:
        for name in ("no-such-model", "no-such-model.gguf"):
            _must_not_load(subject, folder / name, ModelNotFoundError, "a path where nothing is")


@check(
    "loading.broken-model",
    "Files that are not a sound model MUST raise a ModelError.",
)
def broken_model(subject: Subject) -> None:
    with scratch() as folder:
        for path, what in _broken_models(folder):
            _must_not_load(subject, path, ModelError, what)


@check(
    "loading.own-options",
    "An own option that the backend does not know MUST raise InvalidOptionError and be named.",
)
def own_options(subject: Subject) -> None:
    what = "options={'no_such_option': 1}"
    error = must_raise(
        InvalidOptionError,
        _loading(subject, options={"no_such_option": 1}),
        f"a load with {what}",
    )
    must("no_such_option" in str(error), f"the error does not name the option: {error}")


@check(
    "loading.gpu-layers",
    "gpu_layers=-1 MUST be accepted; 0 and n are honoured or refused by name, n where devices() "
    "names no GPU.",
)
def gpu_layers(subject: Subject) -> None:
    error = raised(_loading(subject, gpu_layers=-1))
    must(error is None, f"gpu_layers=-1 was not accepted: {error!r}")
    for layers in (0, 1):
        error = raised(_loading(subject, gpu_layers=layers))
        if error is not None:
            refused = isinstance(error, UnsupportedOptionError) and error.option == "gpu_layers"
            must(
                refused,
                f"gpu_layers={layers} raised {error!r}: it must load, or refuse gpu_layers",
            )
        elif layers and subject.declares(Capability.DEVICE_REPORTING):
            backend: Any = subject.backend
            kinds = [device.kind for device in backend.devices()]
            must(
                "gpu" in kinds,
                f"gpu_layers={layers} was accepted, but no device of {kinds} is a GPU",
            )


@check(
    "loading.spelled-defaults",
    "Load options that ask for what is the default anyway MUST be accepted.",
)
def spelled_defaults(subject: Subject) -> None:
    error = raised(_loading(subject, context_overflow="stop", parallel_slots=1))
    must(error is None, f"context_overflow='stop', parallel_slots=1 was refused: {error!r}")


@check("loading.path-types", "A model's path MUST be taken as a str and as an os.PathLike.")
def path_types(subject: Subject) -> None:
    for path in (os.fspath(subject.path), Path(subject.path)):
        error = raised(_loading(at(subject, path)))
        kind = type(path).__name__
        must(error is None, f"the model's path as a {kind} was not accepted: {error!r}")


@check(
    "loading.context-len",
    "context_len MUST be honoured, by refusing longer prompts, or refused.",
)
def context_len(subject: Subject) -> None:
    requested = min(_SMALL_CONTEXT, subject.model.info.context_length)
    model = _load_unless_refused(subject, requested)
    if model is None:
        return
    with model:
        _refuses_longer(subject, model, requested)
        _must_say_context(model.info.context_length, requested)


@check(
    "loading.context-too-large",
    "A context_len beyond the model's own MUST be refused or honoured, never cut in silence.",
)
def context_too_large(subject: Subject) -> None:
    requested = subject.model.info.context_length + 1
    model = _load_unless_refused(subject, requested)
    if model is not None:
        with model:
            _must_say_context(model.info.context_length, requested)


@check(
    "loading.missing-adapter",
    "An adapter_path where nothing is MUST raise, not load the model without it.",
    Capability.ADAPTERS,
)
def missing_adapter(subject: Subject) -> None:
    with scratch() as folder:
        path = folder / "no-such-adapter"
        error = raised(_loading(subject, adapter_path=path))
    must(error is not None, f"adapter_path={str(path)!r} does not exist, but the model was loaded")
    typed = isinstance(error, ModelError | OptionError)
    must(typed, f"a nonexistent adapter_path raised {error!r}: expected a ModelError")


@check(
    "loading.probe",
    "`refusal(path)` MUST be None for a model that loads, and words for one that does not.",
    Capability.MODEL_PROBE,
)
def probe(subject: Subject) -> None:
    backend: Any = subject.backend
    refusal: object = backend.refusal(subject.path)
    must(refusal is None, f"refusal() of the model under test is {refusal!r}, but the model loads")
    with scratch() as folder:
        nothing = (folder / "nothing", "a path where nothing is")
        for path, what in (nothing, *_broken_models(folder)):
            try:
                refusal = backend.refusal(path)
            except ModelError as error:  # files so broken that there is nothing to probe
                refusal = str(error)
            must(
                isinstance(refusal, str) and refusal != "",
                f"refusal() of {what} is {refusal!r}: it must say why it cannot be loaded",
            )


@check(
    "loading.description",
    "`describe_model(path)` MUST describe the model under test: by its path, in one of the "
    "backend's `formats`, and without a problem.",
    Capability.MODEL_FINDING,
)
def description(subject: Subject) -> None:
    path = resolve_path(subject.path)
    described, fault = described_by(subject.backend, path)
    must(not fault, fault)
    must(described is not None, f"describe_model({path!r}) is None, but the model there loads")
    assert described is not None
    must(not described.problem, f"the problem of a model that loads is {described.problem!r}")


@check(
    "loading.description-of-others",
    "For a path that is not a model, whatever it is, `describe_model(path)` MUST return None or a "
    "description, at once, and raise nothing; None where nothing is, and for an empty directory.",
    Capability.MODEL_FINDING,
)
def description_of_others(subject: Subject) -> None:
    backend = subject.backend
    with scratch() as folder:
        name = os.path.basename(subject.path)
        (folder / "hollow" / name).mkdir(parents=True)
        nothing = [
            (folder / "nothing" / name, "a path where nothing is"),
            (folder / "hollow" / name, "an empty directory"),
        ]
        odd = [*imitations(subject.path, folder / "like it"), *_broken_models(folder)]
        for path, what in (*nothing, *odd, (_NOT_UTF8, "a path that is not UTF-8")):
            describe = partial(described_by, backend, str(path))
            described, fault = promptly(subject, describe, f"describe_model() of {what}", _AT_ONCE)
            must(not fault, f"{what}: {fault}")
            if (path, what) in nothing:
                must(described is None, f"describe_model() of {what} is {described!r}")


@check("loading.info", "`info` and `model_type` MUST state plausible facts about the model.")
def info(subject: Subject) -> None:
    shown: Any = subject.model.info
    must(isinstance(shown, ModelInfo), f"info is a {type(shown).__name__}, not a core.ModelInfo")
    names = {"model_type": subject.model.model_type, "info.architecture": shown.architecture}
    for name, text in names.items():
        must(isinstance(text, str) and text != "", f"{name} is {text!r}: expected a name")
    for name, least in _LEAST.items():
        value: object = getattr(shown, name)
        sound = type(value) is int and value >= least
        must(sound, f"info.{name} is {value!r}: expected an int of at least {least}")
    tolerance = shown.logit_tolerance
    must(
        math.isfinite(tolerance) and tolerance >= 0.0,
        f"info.logit_tolerance is {tolerance!r}: it must be finite and not negative",
    )


_LEAST = {
    "vocab_size": 1,
    "num_layers": 1,
    "hidden_size": 1,
    "quant_bits": 0,
    "quant_group": 0,
    "context_length": 1,
}


def _loading(subject: Subject, **options: Any) -> Callable[[], None]:
    return lambda: subject.load(**options).close()


def _must_not_load(subject: Subject, path: Path, kind: type[Exception], what: str) -> None:
    must_raise(kind, _loading(at(subject, str(path))), what)


def _load_unless_refused(subject: Subject, context_len: int) -> TextModel | None:
    try:
        return subject.load(context_len=context_len)
    except OptionError as error:
        named = getattr(error, "option", None) == "context_len"
        must(named, f"context_len={context_len} was refused under the wrong option name: {error!r}")
        return None


def _must_say_context(size: int, requested: int) -> None:
    must(
        size == requested,
        f"context_len={requested} was accepted, but info.context_length is {size}: honour it or "
        "refuse it",
    )


def _refuses_longer(subject: Subject, model: TextModel, limit: int) -> None:
    longer = " ".join(str(number) for number in range(2 * limit))
    error: Exception | None
    if subject.declares(Capability.GENERATE):
        error = ending(lambda: model.generate(longer, max_tokens=1)).error
    elif subject.classifies:
        error = model.classify([PROMPTS[0], longer])[1].error
    else:
        return
    must(
        isinstance(error, PromptTooLongError) and error.limit <= limit,
        f"with context_len={limit}, a prompt of {2 * limit} numbers ended with {error!r}: it has "
        f"to be PromptTooLongError with a limit of at most {limit}",
    )


def _broken_models(folder: Path) -> list[tuple[Path, str]]:
    empty, unreadable, bare = folder / "empty", folder / "unreadable", folder / "bare"
    for directory in (empty, unreadable, bare):
        directory.mkdir()
    for directory, config in ((unreadable, "{"), (bare, "{}")):
        (directory / "config.json").write_text(config, encoding="utf-8")
        (directory / "model.safetensors").write_bytes(b"no tensors")
    gguf = folder / "broken.gguf"
    gguf.write_bytes(b"no GGUF")
    return [
        (empty, "an empty directory"),
        (unreadable, "a directory whose config.json is not valid JSON"),
        (bare, "a directory whose config.json says nothing"),
        (gguf, "a .gguf file that is not GGUF"),
    ]
