"""What ``core`` exports: pinned by name, so that a name can be added but never lost."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import core

_NAMES = """
    AmbiguousBackendError AttentionInspector AttentionSnapshot Backend BackendEntry BackendError
    BackendImportError BackendProcessError BackendStatus BackendUnavailableError BatchResult
    BatchStreaming CancelToken Capability ChatTemplateError Choice ClassifyOptions ClassifyResult
    ClassifyStreaming ConversionError CoreError Device DeviceReporting DiscoveredModel
    EmptyPromptError Explaining GenerateConfig GenerateMetrics GenerateOptions GenerationCancelled
    GenerationTimeout InvalidModelError InvalidOptionError LabelError LoadConfig LoadOptions
    MemoryReport MemoryReporting Message ModelAccessError ModelBusyError ModelClosedError
    ModelError ModelInfo ModelNotFoundError ModelProbe OptionError OutOfMemoryError
    PROTOCOL_VERSION PromptTooLongError ProtocolMismatchError RenderedPrompt RequestError Score
    Scoring Submitting TextModel TextModelBase Token TokenStream TokenizerError Tokenizing
    TrainConfig TrainStep
    Trainable TrainingExample UnknownBackendError UnsupportedModelError UnsupportedOperationError
    UnsupportedOptionError backend_status backends default_backend discover get_backend load_model
    register
"""
PUBLIC = _NAMES.split()


def test_the_public_names_are_these() -> None:
    assert sorted(core.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_each_name_is_its_home_modules(name: str) -> None:
    value = getattr(core, name)
    home = getattr(value, "__module__", "core.protocols")  # the version is a plain number
    assert getattr(importlib.import_module(home), name) is value


def test_every_error_is_public() -> None:
    errors = importlib.import_module("core.errors")
    names = {name for name, value in vars(errors).items() if isinstance(value, type)}
    defined = {name for name in names if getattr(errors, name).__module__ == "core.errors"}
    assert defined <= set(core.__all__)


def test_dir_and_star_show_them() -> None:
    assert set(PUBLIC) <= set(dir(core))
    namespace: dict[str, object] = {}
    exec("from core import *", namespace)
    assert set(PUBLIC) <= namespace.keys()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'core' has no attribute 'load_modle'"):
        getattr(core, "load_modle")  # noqa: B009 - mypy would see it otherwise


def test_typed_for_its_users() -> None:
    assert (Path(core.__file__).parent / "py.typed").is_file()


def test_a_name_is_found_by_type_checkers_where_it_is_at_run_time() -> None:
    # The lazy table and the imports under TYPE_CHECKING are two lists of one thing.
    source = Path(core.__file__).read_text()
    block = source[source.index("if TYPE_CHECKING:") : source.index("__version__")]
    code = (
        block.replace("if TYPE_CHECKING:", "if True:")
        + "\nprint(*sorted(n for n in dir() if n[0] != '_'))"
    )
    root = str(Path(core.__file__).parents[1])
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {root!r})\n" + code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) - {"sys"} == set(PUBLIC)
