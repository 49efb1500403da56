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
    "core.kit.base": "TextModelBase TokenStreamBase",
    "core.kit.chat": "RenderedPrompt",
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
_GUESSES = {
    **dict.fromkeys(
        ("load", "pipeline", "Model", "from_pretrained", "LLM"),
        "core.load_model(path) loads a model, which generates, chats and classifies",
    ),
    "generate": "core.load_model(path).generate(prompt) is a stream of tokens",
    "classify": "core.load_model(path).classify(prompts, labels=...) returns labels",
    "chat": "core.load_model(path).chat(messages) answers a conversation",
    "embed": "core.load_model(path).hidden_states(texts) returns the states of texts",
    "train": "infer-cli lora train trains an adapter, and core_learn.FewShot a classifier head",
    "calibrate": "core_tasks.Task(...).calibrate(model, texts, gold) calibrates a task",
}
"""Names that other libraries have, each with what there is instead."""
# Names that core_tasks has now, and packages that other distributions have.
_LEFT = (
    "Calibration Decision Evaluation Explanation Item ItemResult Prompting Task Trial Tuning "
    "evaluate explain load_calibration load_task tune"
)
_MOVED = {
    **dict.fromkeys(
        ("core.tasks", "core.calibration", "core.agreement", "core.tuning", "core.evaluation"),
        "core_tasks",
    ),
    **dict.fromkeys(("core.cli", "core.benchmarking"), "core_cli"),
    "core.serving": "core_runtime",
    "core.wires": "core_wires",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME_OF)


class _MovedPackages:
    """A finder for packages that are no longer in core; used after all others."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raise ModuleNotFoundError with the new place. See `importlib.abc.MetaPathFinder`."""
        if new := _MOVED.get(name):
            place = f"{new}, of the distribution {new.replace('core_', 'infercore-')}"
            raise ModuleNotFoundError(f"The package {name} has moved to {place}.", name=name)


_sys.meta_path.append(_MovedPackages)  # type: ignore[arg-type]  # a class will do


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:  # modules, and no names for ``from core import *``
        return import_module(f"core.{name}")
    if name in _LEFT.split():
        what = f"core.{name} is core_tasks.{name} now: import core_tasks, of the extra core[tasks]."
        raise AttributeError(what, name=name)
    if name in _GUESSES:
        raise AttributeError(f"core has no {name!r}: {_GUESSES[name]}.", name=name)
    if name not in _HOME_OF:
        module = _sys.modules[__name__]  # with it, Python asks "Did you mean"
        raise AttributeError(f"module 'core' has no attribute {name!r}", name=name, obj=module)
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_MODULES, *globals(), *__all__})
