"""A backend's description of a path (`core.ModelFinding`), or the fault in its answer."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from typing import cast

from core import log
from core.errors import ANYTHING, described
from core.extensions import ModelFinding
from core.models.finding import Describer
from core.protocols import Backend
from core.types import DiscoveredModel

_USUAL = DiscoveredModel("", "", 0, 0, 0, "", 0, "")  # a value of the right type for each field


def describes(backend: Backend) -> bool:
    """Return whether a backend describes models (`core.ModelFinding`). Does not raise."""
    with suppress(*ANYTHING):  # a property of the backend may raise
        return isinstance(backend, ModelFinding)
    return False


def described_by(backend: Backend, path: str) -> tuple[DiscoveredModel | None, str]:
    """Return a backend's description of a path, and the fault if its answer is invalid.

    Both are empty if the path is not one of its models, and for a backend that describes none.
    Does not raise.
    """
    return _asked(backend, path) if describes(backend) else (None, "")


def describer(backend: Backend) -> Describer:
    """Return `described_by` of a backend that describes models; its first fault is logged."""
    faults: list[str] = []

    def describe(path: str) -> DiscoveredModel | None:
        model, fault = _asked(backend, path)
        if fault and not faults:
            log.misbehaved(backend.name, fault)
            faults.append(fault)
        return model

    return describe


def _asked(backend: Backend, path: str) -> tuple[DiscoveredModel | None, str]:
    finder = cast("ModelFinding", backend)
    try:
        model = finder.describe_model(path)
        fault = "" if model is None else _fault(model, path, backend)
    except ANYTHING as error:
        return None, f"describe_model({path!r}) raised {described(error)}"
    return (None, f"describe_model({path!r}) returned {fault}") if fault else (model, "")


def _fault(model: object, path: str, backend: Backend) -> str:
    """Return the fault of a description, for the backend's author; empty for a valid one."""
    if not isinstance(model, DiscoveredModel):
        return f"a {type(model).__name__}, not a core.DiscoveredModel"
    if model.path != path:
        return f"a model of another path ({model.path!r})"
    for each in fields(model):
        value, usual = getattr(model, each.name), getattr(_USUAL, each.name)
        if not isinstance(value, int | float if isinstance(usual, float) else type(usual)):
            return f"a model whose {each.name} is {value!r}"
    if model.format not in backend.formats:
        return f"a model of the format {model.format!r}, which is not one of its formats"
    return ""
