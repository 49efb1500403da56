"""Reading of conversations, for the library, files of rows, servers and training data.

A message is a `core.Message` or a mapping with its fields. Its content is a string or a list of
parts that are text, as in OpenAI's API; ``developer`` is the newer name of ``system``. Empty fields
(None, an empty list) are ignored; any other unsupported field is an error that names its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

from core.errors import ChatTemplateError, CoreError, InvalidOptionError
from core.types import Message, Role

Path = tuple[str | int, ...]
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_MESSAGE = "core.Message(role, content) or {'role': ..., 'content': ...}"
_KEYS = ("role", "content", "name")
_TEXT_PARTS = ("text", "input_text", "output_text")
_OF_A_TEXT: Collection[object] = {
    "type",
    "text",
    "annotations",
    "logprobs",
    "prompt_cache_breakpoint",
}
_NO_TOOLS = "Tools are not supported: write the call and its result as a user's text."
_ADVICE = {
    **dict.fromkeys(("tool_calls", "function_call", "tool_call_id"), _NO_TOOLS),
    "weight": "Only 1 is supported: omit the messages that should not count.",
}


class MessageProblem(Exception):
    """Invalid part of a conversation.

    ``path`` locates it within the conversation, for example ``(1, "content")``; ``problem`` is a
    sentence, and ``code`` an identifier for programs. ``role`` is set if the role is unknown.
    """

    def __init__(
        self, path: Path, problem: str, code: str = "invalid_value", role: str | None = None
    ) -> None:
        super().__init__(problem)
        self.path, self.problem, self.code, self.role = path, problem, code, role

    def error(self) -> TypeError | CoreError:
        """Return the error that the library raises, with the message's index."""
        if self.role is not None:
            expected = f"one of {', '.join(map(repr, _ROLES))}{_advice_on(self.role)}"
            return InvalidOptionError(f"messages[{self.path[0]}].role", self.role, expected)
        if not self.path:
            return TypeError(self.problem)
        index, *others = self.path
        place = "".join(f"[{step}]" if isinstance(step, int) else f", {step}" for step in others)
        return TypeError(f"Message {index}{place}: {self.problem}")


def checked_messages(messages: object) -> list[Message]:
    """Return messages as a list, with mappings converted to `Message` and contents to strings.

    Raises TypeError, with the message's index, for what is not a message, `InvalidOptionError` for
    an unknown role.
    """
    try:
        return read_messages(messages)
    except MessageProblem as problem:
        raise problem.error() from None


def checked_conversation(messages: object) -> list[Message]:
    """Return the messages of a chat, at least one.

    Raises like `checked_messages`, and `ChatTemplateError` for an empty conversation.
    """
    turns = checked_messages(messages)
    if not turns:
        raise ChatTemplateError("The conversation is empty. Pass at least one message.")
    return turns


def read_messages(messages: object) -> list[Message]:
    """Do `checked_messages`, but raise `MessageProblem`, which callers convert to their errors."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise MessageProblem((), f"A conversation must be a sequence of {_MESSAGE}.", "list_type")
    return [_message(index, turn) for index, turn in enumerate(messages)]


def read_part(part: object, path: Path) -> str:
    """Return the text of one part of a content. Raises `MessageProblem`."""
    if not isinstance(part, Mapping):
        raise MessageProblem(path, f"This must be an object, not {_kind(part)}.", "dict_type")
    kind = _text(part, "type", path)
    if kind in _TEXT_PARTS:
        _refuse_others(part, _OF_A_TEXT, path, "part")
        return _text(part, "text", path)
    if kind == "refusal":
        return _text(part, "refusal", path)
    message = f"A part of type {kind!r:.60} is not supported: only text is."
    raise MessageProblem(path, message, "unsupported_content")


def _message(index: int, turn: object) -> Message:
    if isinstance(turn, Message):
        turn = {name: getattr(turn, name) for name in _KEYS}
    if not isinstance(turn, Mapping):
        message = f"This is {_kind(turn)}, not {_MESSAGE}."
        raise MessageProblem((index,), message, "dict_type")
    role = _text(turn, "role", (index,))
    if role not in _ROLES:
        known = ", ".join(_ROLES)
        message = f"The role {role!r:.60} is not supported: use {known}{_advice_on(role)}."
        raise MessageProblem((index, "role"), message, role=role)
    _refuse_others(turn, _KEYS, (index,), "message")
    name = None if _asks_nothing("name", turn.get("name")) else _text(turn, "name", (index,))
    return Message(_ROLES[role], _content(turn, index), name)


def _content(turn: Mapping[object, object], index: int) -> str:
    content, path = turn.get("content"), (index, "content")
    if isinstance(content, list | tuple):
        parts = cast("Sequence[object]", content)
        return "\n".join(read_part(part, (*path, place)) for place, part in enumerate(parts))
    if content is not None and not isinstance(content, str):
        message = f"This must be a string or a list of parts, not {_kind(content)}."
        raise MessageProblem(path, message, "string_type")
    return _text(turn, "content", (index,))


def _text(fields: Mapping[object, object], name: str, path: Path) -> str:
    value = fields.get(name)
    if value is None:
        raise MessageProblem((*path, name), "This field is required.", "missing")
    if not isinstance(value, str):
        message = f"This must be a string, not {_kind(value)}."
        raise MessageProblem((*path, name), message, "string_type")
    return value


def _refuse_others(
    fields: Mapping[object, object], known: Collection[object], path: Path, what: str
) -> None:
    for name, value in fields.items():
        if name not in known and not _asks_nothing(name, value):
            advice = _ADVICE.get(str(name), "Remove it.")
            message = f"This field of a {what} is not supported. {advice}"
            raise MessageProblem((*path, str(name)), message, "unsupported_value")


def _asks_nothing(name: object, value: object) -> bool:
    if name == "weight" and isinstance(value, int | float) and not isinstance(value, bool):
        return value == 1
    return value is None or (isinstance(value, str | list | tuple | Mapping) and not value)


def _advice_on(role: str) -> str:
    return f". {_NO_TOOLS.removesuffix('.')}" if role in ("tool", "function") else ""


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
