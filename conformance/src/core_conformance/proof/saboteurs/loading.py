"""Saboteurs that load what they should not, or other than they were asked to."""

from __future__ import annotations

import os
from dataclasses import replace

from core.errors import ModelError, UnsupportedOptionError
from core.options import LoadConfig
from core.types import ModelInfo
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import Reference
from core_conformance.reference.files import read_model
from core_conformance.reference.optional import ReferenceModel

Path = str | os.PathLike[str]


@saboteur("untyped-missing-file", "a path where nothing is raises the operating system's error")
class UntypedMissingFile(Reference):
    """Opens the file and lets the error through."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Raises FileNotFoundError for a path where nothing is."""
        os.stat(path)
        return super().load_model(path, config)


@saboteur("untyped-broken-file", "a broken model raises what the parser raises")
class UntypedBrokenFile(Reference):
    """Reads config.json without a thought for what may be in it."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Raises KeyError for a broken model, as json["model_type"] does."""
        try:
            return super().load_model(path, config)
        except ModelError as error:
            if os.path.exists(path) and config.adapter_path is None:
                raise KeyError("model_type") from error
            raise


@saboteur("own-options-dropped", "an unknown own option is dropped")
class OwnOptionsDropped(Reference):
    """Takes what it knows from ``options`` and never looks at the rest."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Loads a model without any own option."""
        return super().load_model(path, replace(config, options={}))


@saboteur("gpu-layers-by-assertion", "gpu_layers that it cannot honour fail in an assertion")
class GpuLayersByAssertion(Reference):
    """Asserts that it gets no gpu_layers, and does not refuse them by name."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Raises AssertionError for layers on a GPU."""
        if config.gpu_layers > 0:
            raise AssertionError("gpu_layers > 0")
        return super().load_model(path, config)


@saboteur("gpu-layers-dropped", "gpu_layers are accepted and ignored on a machine without a GPU")
class GpuLayersDropped(Reference):
    """Hands gpu_layers to a library that was built without a GPU, and says nothing of it."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Loads a model on the CPU, whatever was requested."""
        return super().load_model(path, replace(config, gpu_layers=-1))


@saboteur("path-as-text-only", "a path has to be a str")
class PathAsTextOnly(Reference):
    """Hands the path to a C library, which takes text alone."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Raises TypeError for a path that is not a str."""
        if not isinstance(path, str):
            raise TypeError(f"expected str, got {type(path).__name__}")
        return super().load_model(path, config)


@saboteur("context-capped", "a context_len beyond the model's own is cut to it in silence")
class ContextCapped(Reference):
    """Takes the smaller of the requested context and the model's own."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Loads a model with the context that its config.json names, at most."""
        most = min(config.context_len, read_model(path))
        return super().load_model(path, replace(config, context_len=most))


@saboteur("adapter-optional", "an adapter that cannot be read is left out")
class AdapterOptional(Reference):
    """Prefers a model without its adapter to none."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Loads a model without its adapter, when that cannot be found."""
        adapter = config.adapter_path
        if adapter is not None and not os.path.exists(adapter):
            config = replace(config, adapter_path=None)
        return super().load_model(path, config)


@saboteur("probe-says-yes", "refusal() refuses nothing")
class ProbeSaysYes(Reference):
    """Leaves it to load_model to find out what is wrong with a model."""

    def refusal(self, path: Path, /) -> str | None:
        """Return None for every path."""
        return None


@saboteur("no-hidden-size", "a model says that its hidden size is 0")
class NoHiddenSize(ReferenceModel):
    """Has an empty field in ModelInfo."""

    @property
    def info(self) -> ModelInfo:
        """The facts of the model, with a hidden size of 0."""
        return replace(super().info, hidden_size=0)


@saboteur("context-len-ignored", "context_len is accepted and not used")
class ContextLenIgnored(Reference):
    """Always takes the model's own context length."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Loads a model with its own context length, whatever was requested."""
        return super().load_model(path, replace(config, context_len=0))


@saboteur(
    "one-slot-refused",
    "parallel_slots=1 is refused, although one at a time is what every backend can do",
)
class OneSlotRefused(Reference):
    """Takes 0 for "not asked" and everything else for a wish."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Raises `UnsupportedOptionError` for parallel_slots=1."""
        if config.parallel_slots == 1:
            raise UnsupportedOptionError("parallel_slots", self.name)
        return super().load_model(path, config)
