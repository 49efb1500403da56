"""Saboteurs that lose an adapter, let it spread, or take what is not one."""

from __future__ import annotations

import dataclasses
import os
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from weakref import WeakSet

from core.errors import ModelError
from core.options import LoadConfig
from core.protocols import TextModel
from core.types import BatchResult, ClassifyResult
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import Reference
from core_conformance.reference.classification import Classifier
from core_conformance.reference.files import ADAPTER, read_adapter
from core_conformance.reference.language import Language
from core_conformance.reference.optional import ReferenceModel

Path = str | os.PathLike[str]
_LONG = 90  # characters of a prompt that is worth keeping


@saboteur("adapter-read-and-forgotten", "an adapter is read, and its numbers are not used")
class AdapterForgotten(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        model = super().load_model(path, config)
        model.engine.language = dataclasses.replace(model.engine.language, bias={})
        return model


@saboteur("batch-without-adapter", "batch_generate computes without the adapter")
class BatchWithoutAdapter(ReferenceModel):
    def batch_generate(
        self, prompts: Sequence[str], *config: Any, **options: Any
    ) -> list[BatchResult]:
        engine, language = self.engine, self.engine.language
        if not language.bias:
            return super().batch_generate(prompts, *config, **options)
        slots, rotates = self.engine.slots.count, self.config.context_overflow == "rotate"
        plain = dataclasses.replace(language, bias={})
        self.engine = self.engine_class(plain, slots, rotates, self.check_open)
        try:
            return super().batch_generate(prompts, *config, **options)
        finally:
            self.engine = engine


@saboteur(
    "adapter-in-shared-weights",
    "an adapter is written into weights that all loads of a model share, until it is closed",
)
class AdapterInSharedWeights(Reference):
    _open: ClassVar[WeakSet[ReferenceModel]] = WeakSet()

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        model = super().load_model(path, config)
        if config.adapter_path is not None:
            self._patch(model)
        self._open.add(model)
        return model

    def _patch(self, model: ReferenceModel) -> None:
        others = [other for other in self._open if other.config.adapter_path is None]
        before = [(other, other.engine.language) for other in others]
        for other, language in before:
            bias = model.engine.language.bias
            other.engine.language = dataclasses.replace(language, bias=bias)

        release = model.release

        def restore() -> None:
            for other, language in before:
                other.engine.language = language
            release()

        model.release = restore  # type: ignore[method-assign]  # of this model alone


@saboteur("wrong-adapter-skipped", "an adapter that does not fit is left out")
class WrongAdapterSkipped(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        try:
            return super().load_model(path, config)
        except ModelError:
            if config.adapter_path is None or not os.path.exists(config.adapter_path):
                raise
            return super().load_model(path, replace(config, adapter_path=None))


@saboteur("none-keeps-the-adapter", "with_adapter(None) keeps the adapter")
class NoneKeepsTheAdapter(ReferenceModel):
    def with_adapter(self, path: Path | None, /) -> TextModel:
        if path is None:
            return type(self)(self.engine.language, self.config, self.capabilities)
        return super().with_adapter(path)


@saboteur("kept-for-all-adapters", "what long prompts gave is kept for all handles of a model")
class KeptForAllAdapters(ReferenceModel):
    class Remembers(Classifier):
        """Finds a long prompt again."""

        def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
            memory: dict[str, array[float]] | None = getattr(self._engine, "memory", None)
            if memory is not None and len(prompt) > _LONG:
                logits = array("f", memory.setdefault(prompt, logits))
            return super().result(prompt, ids, logits)

    classifier_class = Remembers

    def with_adapter(self, path: Path | None, /) -> TextModel:
        handle: Any = super().with_adapter(path)
        engine: Any = self.engine
        if not hasattr(engine, "memory"):
            engine.memory = {}
        handle.engine.memory = engine.memory
        return handle  # type: ignore[no-any-return]


@saboteur("handles-close-with-their-model", "closing a model closes its handles")
class HandlesCloseWithTheirModel(ReferenceModel):
    def __init__(
        self, language: Language, config: LoadConfig, capabilities: Collection[Any]
    ) -> None:
        super().__init__(language, config, capabilities)
        self._handles: list[TextModel] = []

    def with_adapter(self, path: Path | None, /) -> TextModel:
        handle = super().with_adapter(path)
        self._handles.append(handle)
        return handle

    def release(self) -> None:
        super().release()
        for handle in self._handles:
            handle.close()


@saboteur(
    "handle-without-its-adapter",
    "with_adapter() of an adapter that cannot be read gives a handle without it",
)
class HandleWithoutItsAdapter(ReferenceModel):
    def with_adapter(self, path: Path | None, /) -> TextModel:
        try:
            return super().with_adapter(path)
        except ModelError:
            return super().with_adapter(None)


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
