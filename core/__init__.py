"""core: one contract for local LLM text generation, many backends.

``core.load_model(path)`` loads a model with the best backend on this machine;
``core.discover()`` lists models on disk; ``core.backends()`` lists the installed backends;
``core.aio`` is the same for asyncio, ``core.testing`` has a fake model for application tests.
Everything public is here; it is imported on first use, so that ``import core`` costs nothing.
"""

from __future__ import annotations

import sys as _sys

__version__ = "0.1.0"

# The one list of public names, each with its home. Type checkers and editors run no code: they read
# __init__.pyi, which a test makes of this table and holds against it (tests/test_public_names.py).
_HOMES = {
    "core.api": "backend_status backends default_backend discover get_backend load_model register",
    "core.errors": (
        "AmbiguousBackendError BackendError BackendImportError BackendProcessError "
        "BackendUnavailableError CalibrationError ChatTemplateError ConversionError CoreError "
        "EmptyPromptError EvaluationError GenerationCancelled GenerationTimeout InvalidModelError "
        "InvalidOptionError LabelError ModelAccessError ModelBusyError ModelClosedError "
        "ModelError ModelNotFoundError OptionError OutOfMemoryError OutputError "
        "PromptTooLongError ProtocolMismatchError RequestError TaskError TokenizerError "
        "TrainingError UnknownBackendError UnsupportedModelError UnsupportedOperationError "
        "UnsupportedOptionError"
    ),
    "core.extensions": (
        "Adapting Asynchronous AsyncStream AttentionInspector BatchStreaming ClassifyStreaming "
        "Declaring DeviceReporting Explaining HiddenStates MemoryReporting ModelFinding ModelProbe "
        "Scoring Submitting Tokenizing TokenPrompts Trainable"
    ),
    "core.kit.base": "TextModelBase",
    "core.kit.chat": "RenderedPrompt",
    "core.kit.streams": "TokenStreamBase",
    "core.options": (
        "CancelToken ClassifyOptions GenerateConfig GenerateOptions LoadConfig LoadOptions "
        "RequestOptions"
    ),
    "core.protocols": "PROTOCOL_VERSION Backend Capability TextModel TokenStream",
    "core.registry": "BackendEntry",
    "core.secret": "Secret",
    "core.training": "TrainConfig TrainingExample TrainingRun TrainStep",
    "core.types": (
        "AttentionSnapshot BackendStatus BatchResult Choice ClassifyResult Device "
        "DiscoveredModel GenerateMetrics HiddenResult MemoryReport Message ModelInfo Score Token "
        "TokenSequence"
    ),
}
_MODULES = ("aio", "testing")
# Names that core_tasks has now.
_LEFT = frozenset(
    [
        "Calibration",
        "Decision",
        "Evaluation",
        "Item",
        "ItemResult",
        "Prompting",
        "Task",
        "Trial",
        "Tuning",
        "evaluate",
        "load_calibration",
        "load_task",
        "tune",
    ]
)
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME_OF)


class _MovedModules:
    """A finder for the old names of modules; used after all others."""

    @staticmethod
    def find_spec(name: str, *_: object) -> object:
        """Return the spec of an old name. See `importlib.abc.MetaPathFinder`."""
        if not name.startswith("core."):
            return None
        from core.moved import find_spec

        return find_spec(name)


_sys.meta_path.append(_MovedModules)  # type: ignore[arg-type]  # a class will do


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:  # modules, and no names for ``from core import *``
        return import_module(f"core.{name}")
    if name in _LEFT:
        what = f"core.{name} is core_tasks.{name} now: import core_tasks, of the extra core[tasks]."
        raise AttributeError(what, name=name)
    if name not in _HOME_OF:
        module = _sys.modules[__name__]  # with it, Python asks "Did you mean"
        raise AttributeError(f"module 'core' has no attribute {name!r}", name=name, obj=module)
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_MODULES, *globals(), *__all__})
