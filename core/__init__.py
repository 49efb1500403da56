"""core: one contract for local LLM text generation, many backends.

``core.load_model(path)`` loads a model with the best backend of this machine;
``core.discover()`` finds models on disk; ``core.backends()`` lists what is installed;
``core.aio`` is the same for asyncio, ``core.testing`` has a model for the tests of an application.
Everything public is here; it is imported on first use, so that ``import core`` costs nothing.
"""

from __future__ import annotations

import sys as _sys

__version__ = "0.1.0"

# The one list of public names, each with its home. Type checkers and editors run no code: they read
# __init__.pyi, which a test makes of this table and holds against it (tests/test_public_names.py).
_HOMES = {
    "core.api": "backend_status backends default_backend discover get_backend load_model register",
    "core.base": "TextModelBase",
    "core.calibration.value": "Calibration load_calibration",
    "core.chat": "RenderedPrompt",
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
    "core.evaluation.evaluate": "evaluate",
    "core.evaluation.items": "Item",
    "core.evaluation.prompts": "Prompting",
    "core.evaluation.result": "Evaluation ItemResult",
    "core.extensions": (
        "Adapting Asynchronous AsyncStream AttentionInspector BatchStreaming ClassifyStreaming "
        "Declaring DeviceReporting Explaining HiddenStates MemoryReporting ModelFinding ModelProbe "
        "Scoring Submitting Tokenizing TokenPrompts Trainable"
    ),
    "core.options": (
        "CancelToken ClassifyOptions GenerateConfig GenerateOptions LoadConfig LoadOptions "
        "RequestOptions"
    ),
    "core.protocols": "PROTOCOL_VERSION Backend Capability TextModel TokenStream",
    "core.registry": "BackendEntry",
    "core.secret": "Secret",
    "core.streams": "TokenStreamBase",
    "core.tasks.decision": "Decision",
    "core.tasks.files": "load_task",
    "core.tasks.task": "Task",
    "core.training": "TrainConfig TrainingExample TrainingRun TrainStep",
    "core.tuning.trial": "Trial Tuning",
    "core.tuning.tune": "tune",
    "core.types": (
        "AttentionSnapshot BackendStatus BatchResult Choice ClassifyResult Device "
        "DiscoveredModel GenerateMetrics HiddenResult MemoryReport Message ModelInfo Score Token "
        "TokenSequence"
    ),
}
_MODULES = ("aio", "testing")
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME_OF)


class _MovedModules:
    """A finder of the names that modules had before; asked after all others."""

    @staticmethod
    def find_spec(name: str, *_: object) -> object:
        """Return the spec of such a name. See `importlib.abc.MetaPathFinder`."""
        if not name.startswith("core."):
            return None
        from core.moved import find_spec

        return find_spec(name)


_sys.meta_path.append(_MovedModules)  # type: ignore[arg-type]  # a class will do


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:  # modules, and no names for ``from core import *``
        return import_module(f"core.{name}")
    if name not in _HOME_OF:
        module = _sys.modules[__name__]  # with it, Python asks "Did you mean"
        raise AttributeError(f"module 'core' has no attribute {name!r}", name=name, obj=module)
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_MODULES, *globals(), *__all__})
