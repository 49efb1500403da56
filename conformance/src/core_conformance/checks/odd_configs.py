"""Checks of directories whose config.json is JSON that no model has: described or refused."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from core.errors import CoreError
from core.extensions import ModelFinding, ModelProbe
from core.protocols import Capability
from core_conformance.checking.calls import at, raised
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject

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
