"""core: one contract for local LLM text generation, many backends.

``core.load_model(path)`` loads a model with the best backend of this machine;
``core.discover()`` finds models on disk; ``core.backends()`` lists what is installed.
Everything public is here; it is imported on first use, so that ``import core`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.api import (
        backend_status,
        backends,
        default_backend,
        discover,
        get_backend,
        load_model,
        register,
    )
    from core.base import TextModelBase
    from core.capability import Capability
    from core.chat import RenderedPrompt
    from core.errors import (
        AmbiguousBackendError,
        BackendError,
        BackendImportError,
        BackendProcessError,
        BackendUnavailableError,
        ChatTemplateError,
        ConversionError,
        CoreError,
        EmptyPromptError,
        GenerationCancelled,
        GenerationTimeout,
        InvalidModelError,
        InvalidOptionError,
        LabelError,
        ModelAccessError,
        ModelBusyError,
        ModelClosedError,
        ModelError,
        ModelNotFoundError,
        OptionError,
        OutOfMemoryError,
        PromptTooLongError,
        ProtocolMismatchError,
        RequestError,
        TokenizerError,
        UnknownBackendError,
        UnsupportedModelError,
        UnsupportedOperationError,
        UnsupportedOptionError,
    )
    from core.extensions import (
        AttentionInspector,
        BatchStreaming,
        ClassifyStreaming,
        DeviceReporting,
        Explaining,
        MemoryReporting,
        ModelProbe,
        Scoring,
        Submitting,
        Tokenizing,
        Trainable,
    )
    from core.options import (
        CancelToken,
        ClassifyOptions,
        GenerateConfig,
        GenerateOptions,
        LoadConfig,
        LoadOptions,
    )
    from core.protocols import PROTOCOL_VERSION, Backend, TextModel, TokenStream
    from core.registry import BackendEntry
    from core.training import TrainConfig, TrainingExample, TrainStep
    from core.types import (
        AttentionSnapshot,
        BackendStatus,
        BatchResult,
        Choice,
        ClassifyResult,
        Device,
        DiscoveredModel,
        GenerateMetrics,
        MemoryReport,
        Message,
        ModelInfo,
        Score,
        Token,
    )

__version__ = "0.1.0"

_HOMES = {
    "core.api": "backend_status backends default_backend discover get_backend load_model register",
    "core.base": "TextModelBase",
    "core.capability": "Capability",
    "core.chat": "RenderedPrompt",
    "core.errors": (
        "AmbiguousBackendError BackendError BackendImportError BackendProcessError "
        "BackendUnavailableError ChatTemplateError ConversionError CoreError EmptyPromptError "
        "GenerationCancelled GenerationTimeout InvalidModelError InvalidOptionError LabelError "
        "ModelAccessError ModelBusyError ModelClosedError ModelError ModelNotFoundError "
        "OptionError OutOfMemoryError PromptTooLongError ProtocolMismatchError RequestError "
        "TokenizerError UnknownBackendError UnsupportedModelError UnsupportedOperationError "
        "UnsupportedOptionError"
    ),
    "core.extensions": (
        "AttentionInspector BatchStreaming ClassifyStreaming DeviceReporting Explaining "
        "MemoryReporting ModelProbe Scoring Submitting Tokenizing Trainable"
    ),
    "core.options": (
        "CancelToken ClassifyOptions GenerateConfig GenerateOptions LoadConfig LoadOptions"
    ),
    "core.protocols": "Backend PROTOCOL_VERSION TextModel TokenStream",
    "core.registry": "BackendEntry",
    "core.training": "TrainConfig TrainStep TrainingExample",
    "core.types": (
        "AttentionSnapshot BackendStatus BatchResult Choice ClassifyResult Device "
        "DiscoveredModel GenerateMetrics MemoryReport Message ModelInfo Score Token"
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

# Spelled out: type checkers count only a literal list as re-export.
__all__ = [
    "PROTOCOL_VERSION",
    "AmbiguousBackendError",
    "AttentionInspector",
    "AttentionSnapshot",
    "Backend",
    "BackendEntry",
    "BackendError",
    "BackendImportError",
    "BackendProcessError",
    "BackendStatus",
    "BackendUnavailableError",
    "BatchResult",
    "BatchStreaming",
    "CancelToken",
    "Capability",
    "ChatTemplateError",
    "Choice",
    "ClassifyOptions",
    "ClassifyResult",
    "ClassifyStreaming",
    "ConversionError",
    "CoreError",
    "Device",
    "DeviceReporting",
    "DiscoveredModel",
    "EmptyPromptError",
    "Explaining",
    "GenerateConfig",
    "GenerateMetrics",
    "GenerateOptions",
    "GenerationCancelled",
    "GenerationTimeout",
    "InvalidModelError",
    "InvalidOptionError",
    "LabelError",
    "LoadConfig",
    "LoadOptions",
    "MemoryReport",
    "MemoryReporting",
    "Message",
    "ModelAccessError",
    "ModelBusyError",
    "ModelClosedError",
    "ModelError",
    "ModelInfo",
    "ModelNotFoundError",
    "ModelProbe",
    "OptionError",
    "OutOfMemoryError",
    "PromptTooLongError",
    "ProtocolMismatchError",
    "RenderedPrompt",
    "RequestError",
    "Score",
    "Scoring",
    "Submitting",
    "TextModel",
    "TextModelBase",
    "Token",
    "TokenStream",
    "TokenizerError",
    "Tokenizing",
    "TrainConfig",
    "TrainStep",
    "Trainable",
    "TrainingExample",
    "UnknownBackendError",
    "UnsupportedModelError",
    "UnsupportedOperationError",
    "UnsupportedOptionError",
    "backend_status",
    "backends",
    "default_backend",
    "discover",
    "get_backend",
    "load_model",
    "register",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module 'core' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
