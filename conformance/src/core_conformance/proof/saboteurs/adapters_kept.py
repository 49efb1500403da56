"""Saboteurs that keep an old adapter, lose the model's own, or share one that is trained."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from core.protocols import TextModel
from core_conformance.proof.registry import saboteur
from core_conformance.reference.files import ADAPTER, read_adapter
from core_conformance.reference.optional import ReferenceModel

Path = str | os.PathLike[str]


@saboteur(
    "adapter-unloaded-first", "with_adapter() that fails leaves the model without its own adapter"
)
class AdapterUnloadedFirst(ReferenceModel):
    """Takes the old adapter off before it reads the new one."""

    def with_adapter(self, path: Path | None, /) -> TextModel:
        """Return the same language with another adapter."""
        self.check_open()
        language = self.engine.language
        self.engine.language = replace(language, bias={})
        other = super().with_adapter(path)
        self.engine.language = language
        return other


@saboteur(
    "handle-of-what-was-trained",
    "with_adapter(None) of a model that was trained has what that learned",
)
class HandleOfWhatWasTrained(ReferenceModel):
    """Adds what it learns to the weights that its handles share."""

    trained: Mapping[int, float] | None = None

    def take_bias(self, bias: Mapping[int, float]) -> None:
        """Learn these numbers for good."""
        super().take_bias(bias)
        self.trained = dict(bias)

    def with_adapter(self, path: Path | None, /) -> TextModel:
        """Return a handle; without an adapter, it is what was learned."""
        other = super().with_adapter(path)
        if path is None and self.trained and isinstance(other, ReferenceModel):
            other.engine.language = replace(other.engine.language, bias=self.trained)
        return other


@saboteur(
    "handles-trained-together",
    "handles of one adapter share its numbers, which a training changes in place",
)
class HandlesTrainedTogether(ReferenceModel):
    """Reads an adapter once, as long as its file is the same."""

    _read: ClassVar[dict[tuple[int, ...], dict[int, float]]] = {}

    def with_adapter(self, path: Path | None, /) -> TextModel:
        """Return the same language with an adapter that others have, too."""
        if path is None:
            return super().with_adapter(None)
        bias = read_adapter(path)
        stat = os.stat(os.path.join(os.path.expanduser(path), ADAPTER))
        file = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
        language = replace(self.engine.language, bias=self._read.setdefault(file, bias))
        return type(self)(language, self.config, self.capabilities)

    def take_bias(self, bias: Mapping[int, float]) -> None:
        """Learn these numbers; those of a file for all that have read it."""
        own = self.engine.language.bias
        shared = next((one for one in self._read.values() if one is own), None)
        if shared is None:
            super().take_bias(bias)
        else:
            self.check_open()
            shared.update(bias)
