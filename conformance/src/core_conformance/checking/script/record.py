"""The calls that the check which now runs has made, as Python that can be pasted.

`watched` lets a model write down its own calls: its class becomes a subclass whose operations do.
The object stays the backend's own, so that identity, ``isinstance`` and weak references hold, and
nothing here refers to a model, a stream or an answer. One check runs at a time in a process.
"""

from __future__ import annotations

import inspect
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from types import MappingProxyType
from typing import Any, TypeVar

from core_conformance.checking.scratch import PREFIX
from core_conformance.checking.script.spelling import spelled, texts_in

M = TypeVar("M")
Listener = Callable[[object, str, tuple[Any, ...], Mapping[str, Any]], tuple[Any, ...]]
"""Hears of a call of a model: its operation, arguments and options; returns the arguments."""

STREAMS = ("generate", "chat", "submit", "batch_stream", "classify_iter")
_WORK = (
    *STREAMS,
    "classify",
    "batch_generate",
    "score",
    "generate_tokens",
    "stream_tokens",
    "score_tokens",
    "hidden_states",
    "inspect_attention",
    "close",
)
_AWAITED = ("call_async", "stream_async")
_CLASSIFYING = ("classify", "classify_iter")
_LOOKS = ("encode", "decode", "render_chat")
_FIRST, _LAST = 8, 256  # calls that are kept: of the beginning, and of the end
_SHOWN = 8  # calls of a script
_ENOUGH = 40  # characters, by which a text is found again

_numbers = itertools.count()
_thread = threading.local()


@dataclass(slots=True)
class Call:
    """One call of the model ``model``, or a line that a check wrote itself.

    ``name`` is that of its answer in the script; ``raised``: the call itself raised.
    """

    model: int
    operation: str
    arguments: str
    texts: tuple[str, ...] = ()
    name: str = ""
    raised: bool = False
    number: int = field(default_factory=_numbers.__next__)


@dataclass(frozen=True, slots=True)
class _Load:
    """A load as a line, and the paths in it at which something was."""

    backend: object
    line: str
    paths: tuple[str | os.PathLike[str], ...]


class _Calls:
    """The first and the last of some calls."""

    def __init__(self) -> None:
        self.first: list[Call] = []
        self.last: deque[Call] = deque(maxlen=_LAST)

    def add(self, call: Call) -> None:
        (self.first if len(self.first) < _FIRST else self.last).append(call)


_calls, _looks = _Calls(), _Calls()
_loads: dict[int, _Load] = {}
_closed: set[int] = set()
_listeners: list[Listener] = []


def begin() -> None:
    """Forget all calls: another check, or another generated example, begins."""
    global _calls, _looks
    _calls, _looks = _Calls(), _Calls()
    while _closed:
        _loads.pop(_closed.pop(), None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let a listener hear of every call of the models that are watched, while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def loading(
    backend: object, arguments: str, paths: Iterable[str | os.PathLike[str] | None] = ()
) -> int:
    """Write down a load, and return the number of its model. ``paths`` are those in it."""
    call = Call(0, "", "")
    there = tuple(path for path in paths if path is not None and os.path.lexists(path))
    _loads[call.number] = _Load(backend, f"core.load_model({arguments})", there)
    return call.number


def watched(model: M, number: int, usual: Mapping[str, object] = MappingProxyType({})) -> M:
    """Return the same model, which records its calls from now on.

    ``usual``: the options of ``classify`` and ``classify_iter`` where a call has no others.
    """
    # A class of C, or one that allows no subclass: its calls are not known.
    with suppress(Exception):
        model.__class__ = _recording(type(model), number, usual)
    return model


def named(name: str) -> Call | None:
    """Give the answer of this thread's last call a name in the script."""
    call: Call | None = getattr(_thread, "call", None)
    if call is not None:
        call.name = name
    return call


def note(line: str) -> Call:
    """Record a line by the check itself, such as the reading of a named stream."""
    call = Call(-1, "", line)
    _calls.add(call)
    return call


def last() -> Call | None:
    """Return this thread's last call."""
    return getattr(_thread, "call", None)


def again(call: Call | None) -> None:
    """Write down a call whose answer was kept, from before `begin`."""
    if call is not None:
        _calls.add(call)


def script(message: str = "", whole: bool = False) -> str:
    """Return the calls that led to a failure, as Python; empty if no model was loaded.

    Of many, the last one and those with a text that ``message`` mentions; ``whole``: all of them.
    """
    calls = _chosen(message, whole)
    numbers = dict.fromkeys(call.model for call in calls if call.model in _loads)
    if not numbers and _loads:
        numbers[max(_loads)] = None  # the load itself raised, or its model was not asked
    if not numbers:
        return ""
    names = {key: f"model{place or ''}" for place, key in enumerate(numbers)}
    origins = dict.fromkeys(_origin(_loads[key].backend) for key in numbers)  # reads all metadata
    lines = ["import core", *filter(None, origins), ""]
    for key, name in names.items():
        lines += [*_made(_loads[key]), f"{name} = {_loads[key].line}"]
    if whole and len(_calls.last) == _LAST:
        lines.append(f"# Of many calls, the first {_FIRST} and the last {_LAST}:")
    return "\n".join(lines + [_line(call, names) for call in calls])


def _made(load: _Load) -> list[str]:
    """Return a comment for a load from files of the check's own, which may be deleted."""
    if not all(map(os.path.lexists, load.paths)):
        return [
            "# The check made these files and has deleted them.",
            "# The command that runs the check alone makes them again.",
        ]
    if any(PREFIX in os.fspath(path) for path in load.paths):
        return ["# The check made these files. They stay there until you delete them."]
    return []


def _chosen(message: str, whole: bool) -> list[Call]:
    recorded = [*_calls.first, *_calls.last, *_looks.first, *_looks.last]
    calls = sorted({call.number: call for call in recorded}.values(), key=lambda call: call.number)
    if whole or len(calls) <= _SHOWN:
        return calls
    about = [call for call in calls[:-1] if _is_about(call, message)]
    about = about or [call for call in calls[-_SHOWN:-1] if call.operation != "close"]
    half = _SHOWN // 2
    return [*about[:half], *about[half:][-half + 1 :], calls[-1]]


def _is_about(call: Call, message: str) -> bool:
    """Return whether the message mentions a text of the call."""
    return any(shown(text)[1:_ENOUGH] in message for text in call.texts for shown in (repr, ascii))


def _line(call: Call, names: dict[int, str]) -> str:
    line = call.arguments if call.model not in names else _asked(call, names[call.model])
    if not call.raised:
        return line
    return f"try:\n    {line}\nexcept Exception as error:\n    print(repr(error))"


def _asked(call: Call, model: str) -> str:
    spelled_call = f"{model}.{call.operation}({call.arguments})"
    if call.operation == "close":
        return spelled_call
    if call.name:
        return f"{call.name} = {spelled_call}"
    if call.operation in STREAMS:
        return f"print(list({spelled_call}))"
    if "return_logits=True" in call.arguments:
        return f"print([(row, row.logits and row.logits[:3]) for row in {spelled_call}])"
    return f"print({spelled_call})"


def _origin(backend: object) -> str:
    """Return the line that makes a backend known which no installed distribution registers."""
    from core.registry import REGISTRY

    name, kind = getattr(backend, "name", ""), type(backend)
    maker = kind.__qualname__
    installed = any(entry.name == name and entry.distribution for entry in REGISTRY.entries())
    if installed or not maker.isidentifier():
        return ""
    return f"from {kind.__module__} import {maker}; core.register({maker}())"


def _recording(kind: type[M], number: int, usual: Mapping[str, object]) -> type[M]:
    """Return the class with operations that write down their calls; what it lacks stays lacking."""
    space: dict[str, object] = {
        name: _writing(number, name, member, usual if name in _CLASSIFYING else {})
        for name in (*_WORK, *_LOOKS)
        if _is_method(member := inspect.getattr_static(kind, name, None))
    }
    space |= {
        name: _hearing(member)
        for name in _AWAITED
        if _is_method(member := inspect.getattr_static(kind, name, None))
    }
    space |= {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    subclass: type[M] = type(kind).__call__(type(kind), kind.__name__, (kind,), space)
    return subclass


def _is_method(member: object) -> bool:
    bound = isinstance(member, staticmethod | classmethod)
    return callable(member) and hasattr(type(member), "__get__") and not bound


def _writing(
    number: int, operation: str, method: Any, usual: Mapping[str, object]
) -> Callable[..., Any]:
    @wraps(method)
    def asked(self: object, /, *arguments: Any, **options: Any) -> Any:
        if getattr(_thread, "inside", False):  # one operation may be made of another
            return method(self, *arguments, **options)
        _thread.inside = True
        if not any(getattr(argument, "labels", ()) for argument in arguments):  # in a config
            options = {**usual, **options}
        call = _written(number, operation, arguments, options)
        try:
            return method(self, *_heard(self, operation, arguments, options), **options)
        except Exception:
            call.raised = True
            raise
        finally:
            _thread.inside = False

    return asked


def _hearing(method: Any) -> Callable[..., Any]:
    """Return an operation that is awaited: the one that it calls is written down."""

    @wraps(method)
    def awaited(self: object, name: str, /, *arguments: Any, **options: Any) -> Any:
        given = _heard(self, f"awaited {name}", arguments, options)
        _thread.awaiting = True  # what it calls meanwhile is written down, but is no other way in
        try:
            return method(self, name, *given, **options)
        finally:
            _thread.awaiting = False

    return awaited


def _heard(
    model: object, operation: str, arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[Any, ...]:
    listeners = [] if getattr(_thread, "awaiting", False) else _listeners
    for listener in listeners:
        arguments = listener(model, operation, arguments, options)
    return arguments


def _written(
    number: int, operation: str, arguments: Sequence[object], options: dict[str, object]
) -> Call:
    given: Iterable[str] = (
        *map(spelled, arguments),
        *(f"{name}={spelled(value)}" for name, value in options.items()),
    )
    call = Call(number, operation, ", ".join(given), texts_in(arguments))
    if operation == "close":
        _closed.add(number)
    (_looks if operation in _LOOKS else _calls).add(call)
    _thread.call = call
    return call
