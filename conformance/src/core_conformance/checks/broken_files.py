"""Checks of loads from files that are those of a sound model but for a fault, and of adapters."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from core.choosing import refusal
from core.errors import CoreError, ModelError, OptionError
from core.extensions import ModelFinding, ModelProbe
from core.models.discovery import described_by
from core.models.files import is_address
from core.protocols import Capability
from core.types import ModelInfo
from core_conformance.checking.calls import at, raised
from core_conformance.checking.check import check, must
from core_conformance.checking.imitations import imitations
from core_conformance.checking.scratch import scratch
from core_conformance.checking.subject import Subject

_HALF = 1 << 20  # bytes of a file at most, where its first half is copied
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".npz")
_FOREIGN = {"peft_type": "LORA", "bias": "none", "r": 8, "target_modules": ["q_proj"]}


@check(
    "loading.incomplete-model",
    "A model without its weights or the half of its file, one that its server does not have, and "
    "one whose config.json holds texts or negative numbers for sizes MUST raise a ModelError; "
    "where no size is read from there, it is the same model",
)
def incomplete_model(subject: Subject) -> None:
    sound = subject.model.info
    with scratch() as folder:
        for path, what, whole in _faulty_models(subject.path, folder):
            infos: list[ModelInfo] = []
            error = raised(_loading(subject, path, infos))
            must(
                isinstance(error, ModelError) or (whole and infos == [sound]),
                f"{what} raised {error!r}, and {infos or 'nothing'} was loaded: expected a "
                "ModelError",
            )


@check(
    "loading.probe-agrees",
    "A model that `refusal(path)` refuses MUST raise a ModelError where it is loaded all the same.",
    Capability.MODEL_PROBE,
)
def probe_agrees(subject: Subject) -> None:
    probing: Any = subject.backend
    with scratch() as folder:
        foreign = folder / "foreign"
        foreign.mkdir()
        faulty = _faulty_models(subject.path, folder)
        others = _of_other_kinds(Path(subject.path), folder)
        for path, what in ((foreign, "an empty directory"), *(one[:2] for one in faulty), *others):
            try:
                refused = probing.refusal(str(path)) is not None
            except ModelError:
                refused = True
            error = raised(_loading(subject, path, []))
            must(
                isinstance(error, ModelError) or not refused,
                f"refusal() refuses {what}, and its load raised {error!r}: expected a ModelError",
            )


@check(
    "loading.description-agrees",
    "A model that `describe_model(path)` describes without a problem MUST load, unless "
    "`refusal(path)` refuses it.",
    Capability.MODEL_FINDING,
)
def description_agrees(subject: Subject) -> None:
    with scratch() as folder:
        others = _of_other_kinds(Path(subject.path), folder)
        for path, what in (*imitations(subject.path, folder / "like it"), *others):
            described, _ = described_by(subject.backend, str(path))
            loads = (
                described is None or bool(described.problem) or refusal(subject.backend, str(path))
            )
            error = None if loads else raised(_loading(subject, path, []))
            must(error is None, f"describe_model() describes {what}, and its load raised {error!r}")


def _of_other_kinds(model: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield a copy of the model whose config.json names an unknown architecture."""
    config = model / "config.json"
    if config.is_file():
        copy = _linked(model, folder / "kind", [config])
        read = json.loads(config.read_text("utf-8"))
        changed = read | {"model_type": "no_such_model", "architectures": ["NoSuchModel"]}
        (copy / config.name).write_text(json.dumps(changed), encoding="utf-8")
        yield copy, "the model of another architecture"


@check(
    "loading.broken-adapter",
    "An adapter_path with nothing in it that is an adapter MUST raise a ModelError or OptionError, "
    "not load the model without it.",
    Capability.ADAPTERS,
)
def broken_adapter(subject: Subject) -> None:
    with scratch() as folder:
        for path, what in _broken_adapters(folder):
            error = raised(_loading(subject, subject.path, [], adapter_path=path))
            must(error is not None, f"adapter_path names {what}, but the model was loaded")
            typed = isinstance(error, ModelError | OptionError)
            must(typed, f"adapter_path of {what} raised {error!r}: expected a ModelError")


def _loading(
    subject: Subject, path: str | Path, infos: list[ModelInfo], **options: Any
) -> Callable[[], None]:
    """Return a function that loads the model at this path and notes what it says of itself."""

    def load() -> None:
        model = at(subject, str(path)).load(**options)
        infos.append(model.info)
        model.close()

    return load


def _faulty_models(path: str, folder: Path) -> Iterator[tuple[str | Path, str, bool]]:
    """Yield copies of a model with one fault each, the fault, and whether all weights are there.

    A server's model cannot be copied: there, the fault is an unknown model name.
    """
    if is_address(path):
        yield f"{path.partition('#')[0]}#no such model", "a model that the server has not", False
        return

    model = Path(path)
    if model.is_file():
        half = folder / model.name
        _cut(model, half)
        yield half, "the first half of the model's file", False
        return

    files = [file for file in sorted(model.iterdir()) if file.is_file()]
    weights = [file for file in files if file.suffix in _WEIGHTS]
    if weights:
        yield _linked(model, folder / "bare", weights), "the model without its weights", False
    config = model / "config.json"
    if config in files:
        for name, wrong in (("texts", "many"), ("negative", -1)):
            copy = _linked(model, folder / name, [config])
            changed = _with_numbers(json.loads(config.read_text("utf-8")), wrong)
            (copy / config.name).write_text(json.dumps(changed), encoding="utf-8")
            yield copy, f"the model whose config.json has {wrong!r} for every whole number", True


def _linked(model: Path, copy: Path, but: list[Path]) -> Path:
    """Return a directory with links to all that the model's has, but for these files."""
    copy.mkdir()
    for file in model.iterdir():
        if file not in but:
            try:
                os.symlink(file.resolve(), copy / file.name)
            except OSError:  # a system without links, or without leave to make them
                shutil.copy(file, copy / file.name)
    return copy


def _cut(file: Path, copy: Path) -> None:
    with open(file, "rb") as whole:
        copy.write_bytes(whole.read(min(_HALF, file.stat().st_size // 2)))


def _with_numbers(value: object, wrong: object) -> object:
    if isinstance(value, dict):
        return {name: _with_numbers(inner, wrong) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_numbers(inner, wrong) for inner in value]
    return wrong if type(value) is int else value


def _broken_adapters(folder: Path) -> Iterator[tuple[Path, str]]:
    empty, unreadable, bare = folder / "empty", folder / "unreadable", folder / "bare"
    for directory in (empty, unreadable, bare):
        directory.mkdir()
    for name in ("adapters.safetensors", "adapter_model.safetensors"):
        (unreadable / name).write_bytes(b"no tensors")
    for directory, config in ((unreadable, "{"), (bare, json.dumps(_FOREIGN))):
        (directory / "adapter_config.json").write_text(config, encoding="utf-8")
    file = folder / "adapter.gguf"
    file.write_bytes(b"no GGUF")
    yield empty, "an empty directory"
    yield unreadable, "a directory of files that are broken"
    yield bare, "a directory with an adapter_config.json of PEFT, and nothing else"
    yield file, "a file that is not an adapter"


_KINDS: dict[str, Any] = {
    "a list": ["llama"],
    "an object": {"name": "llama"},
    "a number": 7,
    "a large number": 10**400,
    "null": None,
    "true": True,
    "empty": "",
    "a NUL": "\0",
    "long": "x" * 10_000,
    "half a character": "\ud800",
}
_WHOLE = ("[]", "7", "null", '"llama"', "{}", "[" * 5000, '{"model_type": "a", "model_type": [1]}')


@check(
    "loading.odd-configs",
    "A config.json of any JSON MUST be described, refused and loaded without another error than a "
    "CoreError: describe_model() raises none, refusal() and a load a ModelError",
)
def odd_configs_are_refused(subject: Subject) -> None:
    texts = {
        f"the model_type {what}": json.dumps({"model_type": kind, "architectures": kind})
        for what, kind in _KINDS.items()
    }
    texts |= {f"nothing but {text:.40}": text for text in _WHOLE}
    with tempfile.TemporaryDirectory(prefix="core-configs-") as folder:
        for number, (what, text) in enumerate(texts.items()):
            place = Path(folder, str(number))
            place.mkdir()
            (place / "config.json").write_text(text, encoding="utf-8")
            (place / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
            _must_be_refused(subject, str(place), what)


def _must_be_refused(subject: Subject, path: str, what: str) -> None:
    backend: Any = subject.backend
    if Capability.MODEL_FINDING in backend.capabilities:
        error = raised(lambda: cast("ModelFinding", backend).describe_model(path))
        must(error is None, f"describe_model() of a config.json with {what} raised {error!r}")
    calls: dict[str, Callable[[], object]] = {"a load": lambda: at(subject, path).load().close()}
    if Capability.MODEL_PROBE in backend.capabilities:
        calls["refusal()"] = lambda: cast("ModelProbe", backend).refusal(path)
    for name, call in calls.items():
        error = raised(call)
        must(
            error is None or isinstance(error, CoreError),
            f"{name} of a config.json with {what} raised {error!r}: expected a ModelError",
        )
