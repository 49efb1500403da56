"""Saboteurs: the reference with one clause broken.

A check that no saboteur fails proves nothing. A saboteur is a part of the reference with a fault
in it: a subclass of `Reference`, of its model, or of one of the classes that the model is made
of; or a function that returns a backend.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import TypeVar, cast

from core.protocols import Backend, Capability
from core_conformance.checking.check import all_checks
from core_conformance.proof import saboteurs
from core_conformance.reference.backend import Reference
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.language import Language
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.sentences import (
    Embedding,
    SentenceClassifier,
    SentenceModel,
    Sentences,
)
from core_conformance.reference.stream import ReferenceStream, SubmittedStream
from core_conformance.reference.training import Training

Broken = TypeVar("Broken", bound=Callable[..., object])
_registered: dict[str, Saboteur] = {}

_MODEL_PARTS: dict[type, str] = {
    Engine: "engine_class",
    ReferenceStream: "stream_class",
    Batch: "batch_class",
    Classifier: "classifier_class",
    SubmittedStream: "submitted_class",
    Training: "training_class",
}


@dataclass(frozen=True, slots=True)
class Saboteur:
    """A backend that breaks one clause. The checks that it fails are recorded (`record`).

    With ``undeclared``, it breaks the refusal of that capability, which it does not declare: it
    fails every check that needs this first of all, and proves nothing about what they look at.
    """

    name: str
    breaks: str
    backend: Callable[[], Backend]
    undeclared: Capability | None = None

    def refuses(self) -> frozenset[str]:
        """Return the ids of the checks that fail because a refusal is broken."""
        if (missing := self.undeclared) is None:
            return frozenset()
        declared = self.backend().capabilities
        return frozenset(
            id for id, check in all_checks().items() if check.missing(declared) is missing
        )


def saboteur(
    name: str, breaks: str, undeclared: Capability | None = None
) -> Callable[[Broken], Broken]:
    """Register what stands below: a broken part of the reference, or a function for a backend."""

    def register(broken: Broken) -> Broken:
        if name in _registered:
            raise ValueError(f"two saboteurs are called {name!r}")
        _registered[name] = Saboteur(name, breaks, whole(broken), undeclared)
        return broken

    return register


@cache
def all_saboteurs() -> Mapping[str, Saboteur]:
    """Return every saboteur, sorted by name."""
    for module in pkgutil.iter_modules(saboteurs.__path__):
        importlib.import_module(f"{saboteurs.__name__}.{module.name}")
    return MappingProxyType(dict(sorted(_registered.items())))


def whole(part: Callable[..., object]) -> Callable[[], Backend]:
    """Return a function that makes the reference with this part in place of the sound one."""
    if not isinstance(part, type) or issubclass(part, Reference):
        return cast("Callable[[], Backend]", part)
    _around(part)  # to say here and now whether it is a part
    return partial(_around, part)


def _around(part: type) -> Backend:
    backend, kind = (
        (Sentences, SentenceModel)
        if issubclass(part, SentenceModel | SentenceClassifier | Embedding)
        else (Reference, ReferenceModel)
    )
    if issubclass(part, Language):
        return _with(backend, "language_class", part)()
    model = part if issubclass(part, ReferenceModel) else _model_with(part, kind)
    return _with(backend, "model_class", model)()


def _model_with(part: type, model: type[ReferenceModel]) -> type[ReferenceModel]:
    if issubclass(part, Generation):
        return _with(model, "engine_class", _with(Engine, "generation_class", part))
    name = next((name for kind, name in _MODEL_PARTS.items() if issubclass(part, kind)), None)
    if name is None:
        raise TypeError(f"{part.__name__} is not a part of the reference")
    return _with(model, name, part)


Kind = TypeVar("Kind", bound=type)


def _with(kind: Kind, name: str, part: type) -> Kind:
    """Return a subclass whose attribute ``name`` is ``part``."""
    return cast("Kind", type(kind.__name__, (kind,), {name: part}))
