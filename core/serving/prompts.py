"""Prompts that can run: text that is text, and token ids that the model has."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import (
    CoreError,
    EmptyPromptError,
    PromptTooLongError,
    TokenizerError,
)
from core.serving.served import ServedModel
from core.support import unicode_error


def checked_ids(model: ServedModel, prompt: str) -> list[int]:
    """The token ids of one prompt. Raises what `text_error` and `ids_error` find."""
    error = text_error(prompt)
    if error is not None:
        raise error
    ids = model.tokenizer.encode(prompt)
    error = ids_error(model, ids)
    if error is not None:
        raise error
    return ids


def text_error(text: str, name: str = "prompt") -> CoreError | None:
    """What keeps a prompt, or what ``name`` calls it, from being tokenised."""
    if not text:
        return EmptyPromptError(f"The {name} is empty. Give it at least one character.")
    return unicode_error(text, name)


def ids_error(model: ServedModel, ids: Sequence[int]) -> CoreError | None:
    """What keeps a tokenised prompt from being run."""
    limit, vocab_size = model.info.context_length, model.info.vocab_size
    if not ids:
        return EmptyPromptError(
            "The prompt has no token. If it has text, the tokenizer knows none of it."
        )
    if len(ids) > limit:
        return PromptTooLongError(len(ids), limit)
    if max(ids) >= vocab_size:  # libraries read past the embedding, unchecked
        return TokenizerError(
            f"The prompt has the token id {max(ids)}, and the model has {vocab_size} tokens. If "
            "its tokenizer made this id, tokenizer.json belongs to another model, or is broken."
        )
    return None
