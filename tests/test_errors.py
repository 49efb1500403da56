"""The error tree: as it is drawn, and through pickling."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from core import errors

ALL = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.CoreError)
]
SAMPLES: dict[type[errors.CoreError], tuple[object, ...]] = {
    errors.InvalidOptionError: ("top_p", 2.0, "a finite number > 0 and <= 1"),
    errors.UnsupportedOptionError: ("seed", "fake"),
    errors.UnsupportedOperationError: ("chat", "fake", ("other",)),
    errors.BackendUnavailableError: ("fake", "no GPU"),
    errors.BackendProcessError: ("The process died.", "last words"),
    errors.PromptTooLongError: (900, 512),
    errors.GenerationTimeout: (1.5,),
}
DEFAULT = ("What happened.",)


def make(cls: type[errors.CoreError]) -> errors.CoreError:
    return cls(*SAMPLES.get(cls, DEFAULT))


def test_the_docstring_draws_the_tree() -> None:
    assert errors.__doc__
    drawn: dict[str, str] = {}
    parents: list[str] = []
    for line in errors.__doc__.splitlines():
        if match := re.match(r"^    ([│├└─ ]*)(\w+(?:Error|Cancelled|Timeout))", line):
            depth = len(match[1]) // 4
            parents[depth:] = [match[2]]
            drawn[match[2]] = parents[depth - 1] if depth else "Exception"
    assert drawn == {cls.__name__: cls.__bases__[0].__name__ for cls in ALL}


@pytest.mark.parametrize("cls", ALL)
def test_an_error_survives_pickling(cls: type[errors.CoreError]) -> None:
    error = make(cls)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))


def test_a_value_that_cannot_be_pickled_does_not_hold_its_error_back() -> None:
    error = errors.InvalidOptionError("cancel", lambda: None, "an object with is_set()")
    copy = pickle.loads(pickle.dumps(error))
    assert copy.option == "cancel"
    assert copy.value.startswith("<function")
    assert str(copy) == str(error)


def test_a_long_value_is_shortened() -> None:
    assert len(str(errors.InvalidOptionError("stop", "x" * 10_000, "a string"))) < 200


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.OptionError, ValueError),
        (errors.UnknownBackendError, LookupError),
        (errors.ModelNotFoundError, FileNotFoundError),
        (errors.ModelAccessError, PermissionError),
        (errors.OutOfMemoryError, MemoryError),
        (errors.GenerationTimeout, TimeoutError),
    ],
)
def test_the_builtin_catches_it_too(cls: type[errors.CoreError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin) as caught:
        raise make(cls)
    assert str(caught.value) == str(make(cls))  # OSError and LookupError quote in other ways


def test_messages_name_their_parts() -> None:
    assert str(make(errors.UnsupportedOperationError)) == (
        "Backend 'fake' does not support chat. Supported by: other."
    )
    assert "No available backend supports it." in str(
        errors.UnsupportedOperationError("chat", "fake")
    )
    itself = errors.UnsupportedOperationError("classify", "remote", ("remote",))
    assert str(itself).endswith("does not support classify. It supports it for other models.")
    assert itself.offered_by == ()
    others = errors.UnsupportedOperationError("classify", "remote", ("remote", "other"))
    assert str(others).endswith("does not support classify. Supported by: other.")
    assert str(errors.BackendUnavailableError("", "No backend.")) == "No backend."
    assert "end of its stderr" in str(make(errors.BackendProcessError))
    assert "900" in str(make(errors.PromptTooLongError))
    assert "512" in str(make(errors.PromptTooLongError))
    known = errors.PromptTooLongError(900, 512, own=4096)
    assert "a larger context_len, at most 4096." in str(known)
    longest = str(errors.PromptTooLongError(9000, 4096, own=4096))
    assert longest.endswith("Shorten it: the model supports no larger context.")
    assert "context_len, if it supports one" in str(make(errors.PromptTooLongError))
    assert "core.load_model" in str(errors.ModelClosedError())
