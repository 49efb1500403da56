"""Prompts to token ids, as in mlx-lm, except for special tokens in users' text.

Users' text is literal: ``<bos>`` in it is five characters. Only a chat template writes special
tokens.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from core_mlx_lm_bridge.child.failures import Failure
from core_mlx_lm_bridge.protocol import Chat, ChatTurn, FamilyTemplate, Generate

_TEMPLATES = "transformers.utils.chat_template_utils"


def family_template(tokenizer: Any, formats: Sequence[FamilyTemplate]) -> str | None:
    """Return the family's template for a model without one; None if it has one or none fits."""
    if tokenizer.has_chat_template:
        return None
    special = _special(tokenizer)
    return next((item.template for item in formats if item.mark in special), None)


def token_ids(tokenizer: Any, request: Generate | Chat, family: str | None) -> list[int]:
    """Return the prompt of a request; ``family`` is `family_template`'s. Raises `Failure`."""
    if isinstance(request, Generate):
        ids = tokenizer.encode(request.prompt, split_special_tokens=True)
    else:
        ids = _chat_ids(tokenizer, request, family)
    if not ids:
        raise Failure("EmptyPromptError", "The prompt has no tokens.")
    return list(ids)


def _chat_ids(tokenizer: Any, request: Chat, family: str | None) -> Any:
    if family is None and not tokenizer.has_chat_template:
        raise Failure(
            "ChatTemplateError",
            "The model has no chat template, and its family has no known chat format. "
            "Use generate with a complete prompt.",
        )

    variables = request.chat_template_kwargs
    if variables:
        _check_variables(tokenizer, variables, family)
    continues = request.continue_final_message
    options: dict[str, Any] = {**variables, "continue_final_message": continues}
    options |= {"add_generation_prompt": not continues}
    options |= {} if family is None else {"chat_template": family}

    turns = [_turn(turn) for turn in request.messages]
    _check_names(tokenizer, turns, options)
    if _spell_special(tokenizer, turns, variables):
        options |= _plain_text(tokenizer)
    return _applied(tokenizer, turns, options)


def _applied(tokenizer: Any, turns: list[dict[str, str]], options: dict[str, Any]) -> Any:
    try:
        return tokenizer.apply_chat_template(turns, **options)
    except Exception as error:  # a template is a program: it may raise anything
        raise Failure(
            "ChatTemplateError",
            f"The model's chat template failed on these messages: {error!s:.500}",
        ) from error


def _turn(turn: ChatTurn) -> dict[str, str]:
    message = {"role": turn.role, "content": turn.content}
    return message if turn.name is None else {**message, "name": turn.name}


def _check_variables(tokenizer: Any, names: Iterable[str], family: str | None) -> None:
    """Raise `Failure` for a variable that the template never reads."""
    compiled = getattr(import_module(_TEMPLATES), "_compile_jinja_template", None)
    if compiled is None or not hasattr(tokenizer._tokenizer, "get_chat_template"):
        raise _unseen()
    if tokenizer._chat_template is not None:  # a program of mlx-lm's
        raise _unseen()
    source = family or tokenizer._tokenizer.get_chat_template()
    environment = compiled(source).environment
    meta = import_module("jinja2.meta")
    read = meta.find_undeclared_variables(environment.parse(source))
    read -= {*environment.globals, "messages", "add_generation_prompt"}
    for name in names:
        if name not in read:
            raise Failure("InvalidOptionError", ", ".join(sorted(read)), variable=name)


def _unseen() -> Failure:
    return Failure(
        "ChatTemplateError",
        "The variables of this model's chat template cannot be determined. Omit "
        "chat_template_kwargs, or upgrade the worker's mlx-lm and transformers.",
    )


def _check_names(tokenizer: Any, turns: list[dict[str, str]], options: dict[str, Any]) -> None:
    """Raise `Failure` for a speaker's name that does not change the prompt."""
    named = [place for place, turn in enumerate(turns) if "name" in turn]
    text = _applied(tokenizer, turns, {**options, "tokenize": False}) if named else ""
    for place in named:
        bare = {key: value for key, value in turns[place].items() if key != "name"}
        others = [*turns[:place], bare, *turns[place + 1 :]]
        if _applied(tokenizer, others, {**options, "tokenize": False}) == text:
            raise Failure(
                "ChatTemplateError",
                "The model's chat template has no place for a message's name "
                f"({turns[place]['name']!r:.60}): omit it, or write it into the content.",
            )


def _spell_special(
    tokenizer: Any, turns: list[dict[str, str]], variables: Mapping[str, Any]
) -> bool:
    special = _special(tokenizer)
    given = [*(text for turn in turns for text in turn.values())]
    given.append(json.dumps(variables, ensure_ascii=False))
    return any(text in value for value in given for text in special)


def _special(tokenizer: Any) -> set[str]:
    added = tokenizer.added_tokens_decoder.values()
    return {token.content for token in added if token.special}


def _plain_text(tokenizer: Any) -> dict[str, bool]:
    """Return the option that makes transformers read special tokens in contents literally."""
    wanted = "sanitize_control_tokens"
    # Looked up: an older transformers would hand an unknown option to the template.
    if wanted not in inspect.signature(tokenizer._tokenizer.apply_chat_template).parameters:
        raise Failure(
            "ChatTemplateError",
            "A message contains the text of a special token, and the worker's transformers is too "
            "old to read it as plain text. Upgrade it: pip install --upgrade transformers",
        )
    return {wanted: True}
