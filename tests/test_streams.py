"""What every stream has from `TokenStreamBase`: its whole text, what came of it, its repr."""

from __future__ import annotations

import gc
import json
import threading
import weakref

import pytest

import core
from core.kit.base import TokenStreamBase
from core.testing import FakeModel
from core.types import FinishReason, GenerateMetrics, Token

ANSWER = "Once, é\r\n and for all."


@pytest.fixture
def model() -> FakeModel:
    return FakeModel(ANSWER)


def test_text_is_all_of_it_at_every_call(model: FakeModel) -> None:
    stream = model.generate("Hello")
    assert [stream.text(), stream.text()] == [ANSWER, ANSWER]
    assert stream.finish_reason == "stop"
    assert list(stream) == []


@pytest.mark.parametrize("operation", ["generate", "submit", "chat"])
def test_text_has_what_was_read_before(model: FakeModel, operation: str) -> None:
    asked = [core.Message("user", "Hello")] if operation == "chat" else "Hello"
    stream = getattr(model, operation)(asked)
    assert "".join(next(stream).text for _ in range(4)) == ANSWER[:4]
    assert stream.text() == ANSWER


def test_text_has_what_was_held_back(model: FakeModel) -> None:
    assert model.generate("Hello", stop="all. ").text() == ANSWER  # which may yet begin


def test_text_of_a_closed_stream_is_what_was_read(model: FakeModel) -> None:
    stream = model.generate("Hello")
    for _ in range(4):
        next(stream)
    stream.close()
    assert stream.text() == ANSWER[:4]
    assert stream.to_dict()["finish_reason"] == "cancelled"


def test_text_raises_what_ended_it_each_time(model: FakeModel) -> None:
    cancel = threading.Event()
    stream = model.generate("Hello", cancel=cancel)
    assert next(stream).text == ANSWER[0]
    cancel.set()
    for _ in range(3):
        with pytest.raises(core.GenerationCancelled):
            stream.text()
    assert stream.to_dict()["text"] == ANSWER[0]


def test_what_came_of_it_is_for_json(model: FakeModel) -> None:
    stream = model.generate("Hello")
    before = stream.to_dict()
    assert (before["text"], before["finish_reason"], before["error"]) == ("", None, None)
    stream.text()
    found = json.loads(json.dumps(stream.to_dict(), allow_nan=False))
    assert (found["text"], found["finish_reason"], found["error"]) == (ANSWER, "stop", None)
    assert found["metrics"]["generated_tokens"] == len(ANSWER)


def test_an_error_is_told_by_type_and_message(model: FakeModel) -> None:
    stream = model.generate("")
    with pytest.raises(core.EmptyPromptError) as caught:
        stream.text()
    said = {"type": "EmptyPromptError", "message": str(caught.value)}
    assert stream.to_dict()["error"] == said


def test_a_failed_stream_is_not_held_by_its_own_error() -> None:
    def fail() -> weakref.ref[core.TokenStream]:
        stream = FakeModel("never").generate("")
        for _ in range(2):
            with pytest.raises(core.EmptyPromptError):
                stream.text()
        return weakref.ref(stream)

    gc.collect()
    gc.disable()
    try:
        assert fail()() is None
    finally:
        gc.enable()


def test_repr_says_its_state_and_no_text(model: FakeModel) -> None:
    stream = model.generate("Hello")
    assert repr(stream) == "<FakeStream: not read yet; iterate it, or call text()>"
    next(stream)
    assert repr(stream) == "<FakeStream: 1 character so far; text() reads the rest>"
    stream.text()
    assert repr(stream) == f"<FakeStream: ended with 'stop', {len(ANSWER)} characters>"
    failed = model.generate("")
    with pytest.raises(core.EmptyPromptError):
        next(failed)
    assert repr(failed) == "<FakeStream: failed with EmptyPromptError after 0 characters>"


class OddError(Exception):
    """An error that cannot be copied: its class takes what it does not keep."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


class Odd(TokenStreamBase):
    """A stream of a backend elsewhere: the four members that it has to have."""

    finish_reason: FinishReason | None = None
    metrics = GenerateMetrics()

    def next_token(self) -> Token:
        raise OddError("broken ", "pipe")

    def close(self) -> None:
        """Nothing."""


def test_an_error_that_cannot_be_copied_is_told_by_its_words() -> None:
    stream = Odd()
    with pytest.raises(OddError):
        stream.text()
    with pytest.raises(core.CoreError, match="OddError: broken pipe"):
        stream.text()


class Waiting(Odd):
    """A stream whose tokens wait in it."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = [*ANSWER]

    def next_token(self) -> Token:
        if not self.tokens:
            raise StopIteration
        return Token(0, self.tokens.pop(0))


def test_a_stream_may_be_used_as_it_is_thrown_away() -> None:
    """As by what reads one in its ``__del__`` when the interpreter ends."""
    read: list[str] = []

    class Late:
        def __init__(self, stream: Waiting) -> None:
            self.stream, self.itself = stream, self

        def __del__(self) -> None:
            read.append(self.stream.text())

    stream = Waiting()  # older than its user, and so finalised before it
    next(stream)
    late = Late(stream)
    del stream, late
    gc.collect()
    assert read == [ANSWER]
