"""Conversion of a request's content to the text of a prompt.

A string is unchanged. An object becomes lines of ``name: value`` and an array lines of ``- value``;
deeper values are compact JSON. Parts of messages are joined by line breaks; anything but text
(images, files, sound) is an error, because no model here supports it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from core.messages import MessageProblem, read_part
from core_wires.questions import MAX_LETTERS, Choice, How, Question, Score
from core_wires.values import Value

# https://platform.openai.com/docs/api-reference/decisions (openai 3.57.0, DecisionInputJSON)
_MAX_JSON_DEPTH, _MAX_JSON_VALUES, _MAX_JSON_BYTES = 32, 10_000, 256 * 1024


def described(value: Value) -> str:
    """Return System One's content as text: a string, an object, or an array."""
    if not isinstance(value.data, str | Mapping | list | tuple):
        raise value.wrong("This must be a string, an object, or an array.", "string_type")
    return plain(value.data)


def plain(data: object) -> str:
    """Return JSON as lines that are easy for a model to read."""
    if isinstance(data, Mapping):
        return "\n".join(f"{name}: {_inline(value)}" for name, value in data.items())
    if isinstance(data, list | tuple):
        return "\n".join(f"- {_inline(value)}" for value in data)
    return _inline(data)


def _inline(data: object) -> str:
    if isinstance(data, str):
        return data
    return json.dumps(data, ensure_ascii=False, separators=(", ", ": "))


def reading(request: Value, questions: Sequence[Question]) -> How:
    """Return the ``x_reading`` of a request with these questions."""
    how = request.get("x_reading")
    if how is None or how.text() == "labels":
        return "labels"
    if how.text() != "letters":
        raise how.wrong("This must be labels or letters.")
    if any(_size_of(question) > MAX_LETTERS for question in questions):
        raise how.wrong(f"Letters support at most {MAX_LETTERS} options: use labels.")
    return "letters"


def _size_of(question: Question) -> int:
    match question:
        case Choice(options=options):
            return len(options)
        case Score(levels=levels):
            return len(levels)
        case _:
            return 2


def parts(value: Value) -> str:
    """Return OpenAI's content as text: a string, or an array of parts that are text or JSON."""
    if isinstance(value.data, str):
        return value.data
    if not isinstance(value.data, list | tuple):
        raise value.wrong("This must be a string or an array of parts.", "string_type")
    return "\n".join(_part(part) for part in value.items())


def _part(part: Value) -> str:
    if part.need("type").text() == "input_json":
        return _json_part(part.need("data"))
    try:
        return read_part(part.data, part.path)
    except MessageProblem as problem:
        raise part.dialect.invalid(problem.path, problem.problem, problem.code) from None


def _json_part(data: Value) -> str:
    """Return an object, or an array of objects, within the limits of its wire."""
    objects = data.items() if isinstance(data.data, list | tuple) else [data]
    for item in objects:
        item.fields()
    depth, values = _size(data.data)
    if depth > _MAX_JSON_DEPTH or values > _MAX_JSON_VALUES:
        limits = f"{_MAX_JSON_DEPTH} levels and {_MAX_JSON_VALUES} values"
        raise data.wrong(f"This JSON is larger than {limits}.", "too_long")
    compact = json.dumps(data.data, ensure_ascii=False, separators=(",", ":"))
    if len(compact.encode()) > _MAX_JSON_BYTES:
        raise data.wrong(f"This JSON has more than {_MAX_JSON_BYTES} bytes.", "too_long")
    return plain(data.data)


def _size(data: object) -> tuple[int, int]:
    """Return the nesting depth and the number of values; `core_wires.values` bounds both."""
    if isinstance(data, Mapping):
        data = list(data.values())
    if not isinstance(data, list | tuple):
        return 0, 1
    inner = [_size(value) for value in data]
    return 1 + max((depth for depth, _ in inner), default=0), 1 + sum(n for _, n in inner)
