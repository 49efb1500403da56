"""Prompts to token ids, as mlx-lm does it, but for text that spells special tokens.

Text from users is plain text: ``<bos>`` in it is five characters. Only a chat template writes
special tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from core_mlx_lm_bridge.child.failures import Failure
from core_mlx_lm_bridge.protocol import Chat, ChatFormat, ChatTurn, Generate


def family_template(tokenizer: Any, formats: Sequence[ChatFormat]) -> str | None:
    """The template for a model that has none of its own; None where it has, or none fits."""
    if tokenizer.has_chat_template:
        return None
    special = _special(tokenizer)
    return next((item.template for item in formats if item.mark in special), None)


def token_ids(tokenizer: Any, request: Generate | Chat, family: str | None) -> list[int]:
    """The prompt of a request; ``family`` is `family_template`'s. Raises `Failure`."""
    if isinstance(request, Generate):
        ids = tokenizer.encode(request.prompt, split_special_tokens=True)
    else:
        ids = _chat_ids(tokenizer, request.messages, family)
    if not ids:
        raise Failure("EmptyPromptError", "The prompt has no tokens. Give it some text.")
    return list(ids)


def _chat_ids(tokenizer: Any, messages: Sequence[ChatTurn], family: str | None) -> Any:
    if family is None and not tokenizer.has_chat_template:
        raise Failure(
            "ChatTemplateError",
            "The model has no chat template, and its family has no known chat format. "
            "Use generate with a prompt of your own.",
        )

    turns = [{"role": turn.role, "content": turn.content} for turn in messages]
    options: dict[str, Any] = {} if family is None else {"chat_template": family}
    if _spell_special(tokenizer, messages):
        options |= _plain_text(tokenizer)

    try:
        return tokenizer.apply_chat_template(turns, add_generation_prompt=True, **options)
    except Exception as error:  # a template is a program: it may raise anything
        raise Failure(
            "ChatTemplateError",
            f"The model's chat template failed on these messages: {error!s:.500}",
        ) from error


def _spell_special(tokenizer: Any, messages: Sequence[ChatTurn]) -> bool:
    special = _special(tokenizer)
    return any(text in turn.content for turn in messages for text in special)


def _special(tokenizer: Any) -> set[str]:
    added = tokenizer.added_tokens_decoder.values()
    return {token.content for token in added if token.special}


def _plain_text(tokenizer: Any) -> dict[str, bool]:
    """The option with which transformers reads special tokens in contents as plain text."""
    wanted = "sanitize_control_tokens"
    # Looked up: an older transformers would hand an unknown option to the template.
    if wanted not in inspect.signature(tokenizer._tokenizer.apply_chat_template).parameters:
        raise Failure(
            "ChatTemplateError",
            "A message spells a special token, and the worker's transformers is too old to read "
            "it as plain text. Upgrade it: pip install --upgrade transformers",
        )
    return {wanted: True}
