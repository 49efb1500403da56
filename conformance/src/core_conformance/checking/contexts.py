"""Prompts that do not fit: a context that is soon exceeded, and the error that it takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import PromptTooLongError, UnsupportedOptionError
from core.protocols import TextModel
from core_conformance.checking.check import must
from core_conformance.checking.subject import Subject

SMALL_CONTEXT = 128  # tokens
_LARGE_CONTEXT = 65_536


@contextmanager
def short_context(subject: Subject, large: int = _LARGE_CONTEXT) -> Iterator[TextModel]:
    """Yield a model whose context is soon exceeded: the shared one, unless its context is large.

    ``large``: the largest context, in tokens, that the shared model may have. A backend may
    refuse to make its context smaller.
    """
    if subject.model.info.context_length <= large:
        yield subject.model
        return
    try:
        model = subject.load(context_len=SMALL_CONTEXT)
    except UnsupportedOptionError:
        yield subject.model
        return
    with model:
        yield model


def overlong(model: TextModel) -> str:
    """Return a prompt longer than the model's context."""
    # A number is one token at least, whatever the vocabulary; twice as many to be safe.
    return " ".join(str(number) for number in range(2 * model.info.context_length))


def must_be_too_long(model: TextModel, error: Exception | None, length: int | None) -> None:
    """Raise `Violation` unless this is the error of a prompt that has so many tokens."""
    must(
        isinstance(error, PromptTooLongError),
        f"a prompt longer than the context of {model.info.context_length} tokens ended with "
        f"{error!r}: expected PromptTooLongError",
    )

    # Its two numbers are right, and in this order.
    assert isinstance(error, PromptTooLongError)
    must(
        0 < error.limit <= model.info.context_length < error.length,
        f"PromptTooLongError reports length {error.length} and limit {error.limit}, but the "
        f"context holds {model.info.context_length}",
    )
    must(
        length in (None, error.length),
        f"PromptTooLongError reports length {error.length}, but encode() makes {length} tokens",
    )
