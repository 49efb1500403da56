"""Saboteurs of loading a model, and of describing it to discovery."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from core.errors import ModelError, UnsupportedOptionError
from core.models.files import read_config_json
from core.options import LoadConfig
from core.protocols import Capability
from core.types import DiscoveredModel, ModelInfo
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import Reference
from core_conformance.reference.optional import ReferenceModel

Path = str | os.PathLike[str]


@saboteur("untyped-missing-file", "a path where nothing is raises the operating system's error")
class UntypedMissingFile(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        os.stat(path)
        return super().load_model(path, config)


@saboteur("untyped-broken-file", "a broken model raises what the parser raises")
class UntypedBrokenFile(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        try:
            return super().load_model(path, config)
        except ModelError as error:
            if os.path.exists(path) and config.adapter_path is None:
                raise KeyError("model_type") from error
            raise


@saboteur("own-options-dropped", "an unknown own option is dropped")
class OwnOptionsDropped(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        return super().load_model(path, replace(config, options={}))


@saboteur("gpu-layers-by-assertion", "gpu_layers that it cannot honour fail in an assertion")
class GpuLayersByAssertion(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        if config.gpu_layers > 0:
            raise AssertionError("gpu_layers > 0")
        return super().load_model(path, config)


@saboteur("path-as-text-only", "a path has to be a str")
class PathAsTextOnly(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        if not isinstance(path, str):
            raise TypeError(f"expected str, got {type(path).__name__}")
        return super().load_model(path, config)


@saboteur("adapter-optional", "an adapter that cannot be read is left out")
class AdapterOptional(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        adapter = config.adapter_path
        if adapter is not None and not os.path.exists(adapter):
            config = replace(config, adapter_path=None)
        return super().load_model(path, config)


@saboteur("probe-says-yes", "refusal() refuses nothing")
class ProbeSaysYes(Reference):
    def refusal(self, path: Path, /) -> str | None:
        return None


@saboteur("no-hidden-size", "a model says that its hidden size is 0")
class NoHiddenSize(ReferenceModel):
    @property
    def info(self) -> ModelInfo:
        return replace(super().info, hidden_size=0)


@saboteur("context-len-ignored", "context_len is accepted and not used")
class ContextLenIgnored(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        return super().load_model(path, replace(config, context_len=0))


@saboteur(
    "one-slot-refused",
    "parallel_slots=1 is refused, although one at a time is what every backend can do",
)
class OneSlotRefused(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        if config.parallel_slots == 1:
            raise UnsupportedOptionError("parallel_slots", self.name)
        return super().load_model(path, config)


@saboteur("describes-any-directory", "an empty directory is described as a model")
class DescribesAnyDirectory(Reference):
    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        described = super().describe_model(path)
        if described is None and os.path.isdir(path) and not os.listdir(path):
            return DiscoveredModel(path, "", 0, 0, 0, "safetensors", 0, "", problem="no files")
        return described


@saboteur(
    "describes-other-kinds",
    "a model of another kind, which does not load, is described as a sound one",
)
class DescribesOtherKinds(Reference):
    def __init__(self) -> None:
        super().__init__(without={Capability.MODEL_PROBE})

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        with suppress(ModelError):
            kind = str(read_config_json(path).get("model_type", ""))
            return DiscoveredModel(path, kind, 0, 0, 0, "safetensors", 0, "") if kind else None
        return None


@saboteur("paths-are-ascii", "a path is handed on as ASCII")
class PathsAreAscii(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        if os.fspath(path).isascii() or not os.fspath(path).isprintable():
            return super().load_model(path, config)
        raise UnicodeEncodeError("ascii", os.fspath(path), 0, 1, "ordinal not in range(128)")


@saboteur(
    "paths-are-utf8",
    "a path is handed on as UTF-8: so it was in mlx_cpu at commit 77e22b6, where it ended as "
    "std::bad_cast",
)
class PathsAreUtf8(Reference):
    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        os.fspath(path).encode()
        return super().load_model(path, config)
