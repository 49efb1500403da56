"""Values as Python spells them: the arguments of a call that can be pasted."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.kit.chat import RenderedPrompt
from core.options import CancelToken, GenerateConfig, LoadConfig
from core.types import Message

_LONG = 120  # characters of a text that is worth a shorter spelling
_TEXTS = 8  # of a call's texts, to find it by
_SET = "type('Set', (), {'is_set': lambda self: True})()"


class Named(threading.Event):
    """A cancel that has a name in the script of its calls."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def spelled(value: object) -> str:
    """Return an expression that gives the value again; for what has none, None and what it was."""
    if value is None or isinstance(value, bool | bytes):
        return repr(value)

    # Of text, and of numbers.
    if isinstance(value, RenderedPrompt):
        return f"core.RenderedPrompt({_text(value.marked)}, {value.marker!r})"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return _number(value)

    # Of what holds other values.
    if isinstance(value, GenerateConfig | LoadConfig | Message):
        return f"core.{type(value).__name__}({', '.join(_fields(value))})"
    if isinstance(value, list | tuple):
        return _sequence(value)
    if isinstance(value, Mapping):
        items = (f"{spelled(key)}: {spelled(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    return _object(value)


def texts_in(values: Sequence[object]) -> tuple[str, ...]:
    """Return the first text among the arguments, by which a call is found."""
    texts: list[str] = []
    for value in values:
        several = value if isinstance(value, list | tuple) else [value]
        for item in several[:_TEXTS]:
            text = item.content if isinstance(item, Message) else item
            if isinstance(text, str) and text:
                texts.append(text)
    return tuple(texts)


def keywords(values: Mapping[str, object]) -> str:
    """Return keyword arguments as source, with a comma before each."""
    return "".join(f", {name}={spelled(value)}" for name, value in values.items())


def _text(text: str) -> str:
    # ASCII only: what a terminal shows of combining marks and directions cannot be copied.
    plain = ascii(str.__str__(text))
    if len(text) <= _LONG:
        return plain

    # Of a repetition, the part that is repeated.
    unit = next((size for size in range(1, 9) if text == (text[:size] * len(text))[: len(text)]), 0)
    if not unit:
        return plain
    times, rest = divmod(len(text), unit)
    return f"{text[:unit]!a} * {times}" + (f" + {text[:rest]!a}" if rest else "")


def _number(value: int | float) -> str:
    if isinstance(value, int):
        return repr(int(value))
    return repr(float(value)) if math.isfinite(value) else f"float({str(float(value))!r})"


def _fields(value: Any) -> list[str]:
    """Return the fields that are not at their default, by name."""
    return [
        f"{field.name}={spelled(getattr(value, field.name))}"
        for field in dataclasses.fields(value)
        if isinstance(value, Message) or not _is_default(field, getattr(value, field.name))
    ]


def _is_default(field: dataclasses.Field[Any], value: object) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return type(value) is type(field.default) and value == field.default


def _sequence(value: list[object] | tuple[object, ...]) -> str:
    # Many equal rows are one row, many times.
    if len(value) > _TEXTS and isinstance(value[0], str) and value.count(value[0]) == len(value):
        whole = f"[{spelled(value[0])}] * {len(value)}"
        return whole if isinstance(value, list) else f"({spelled(value[0])},) * {len(value)}"
    if numbered := _numbered(value):
        return numbered
    inner = ", ".join(map(spelled, value))
    if isinstance(value, list):
        return f"[{inner}]"
    return f"({inner},)" if len(value) == 1 else f"({inner})"


def _numbered(value: list[object] | tuple[object, ...]) -> str:
    """Return an expression for many texts that are numbered in rounds; empty for all others."""
    second = f"{value[0]} 1" if value else ""
    if len(value) <= _TEXTS or second not in value:
        return ""
    texts = value[: value.index(second)]
    rounds = -(-len(value) // len(texts))
    again = [f"{text} {n}" if n else text for n in range(rounds) for text in texts]
    if again[: len(value)] != list(value):
        return ""
    kind, inner = type(value).__name__, spelled(texts)
    row = f"f'{{text}} {{n}}' if n else text for n in range({rounds}) for text in {inner}"
    return f"{kind}({row})[:{len(value)}]"


def _object(value: object) -> str:
    if isinstance(value, Named):
        return value.name
    if isinstance(value, os.PathLike):
        return spelled(os.fspath(value))
    if isinstance(value, CancelToken):
        # Only an Event is polled: other cancel objects may count calls of is_set().
        is_set = isinstance(value, threading.Event) and value.is_set()
        return _SET if is_set else "__import__('threading').Event()"
    if isinstance(value, type(iter([])) | type(iter(()))):
        return f"iter({spelled(list(copy.copy(value)))})"
    if isinstance(value, Iterator):
        return "iter(())"  # a generator: it can be read only once
    return "object()" if type(value) is object else ascii(f"<{type(value).__name__}>")
