"""Checks of leftovers: unread streams, failed calls, closed models.

Each is done in rounds. A leftover grows with every round, and takes a slot, a thread, a
descriptor or memory that a later request needs.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import CoreError
from core.protocols import Capability, TextModel
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, opened
from core_conformance.checking.calls import CancelAfter, already_set, promptly, raised
from core_conformance.checking.check import check, leave_out, must
from core_conformance.checking.subject import Subject
from core_conformance.checking.watching import Holdings, growing, holdings, quick_collections
from core_conformance.checking.ways.rows import asked, run, same_rows
from core_conformance.checking.ways.table import Way, ways

_TOKENS = 6
_ROUNDS = 3  # after the first
_LEAST = Holdings(threads=1, descriptors=1, resident_bytes=2 << 20, active_bytes=1 << 9)
_LARGE = 8 << 20  # bytes: a model that shows in the memory of the process
_SLOW_LOAD = 20.0  # seconds
_OF_TEXT = 12  # bytes in memory for each byte of a tokenizer's file, at most
_LOADS_SECONDS = 6.0
_LONGEST = 20_000  # tokens: a context of which no prompt is too long in a moment
_AT_ONCE = 1e-9  # seconds
_ITERATORS = (Capability.BATCH_STREAMING, Capability.CLASSIFY_STREAMING)


@dataclass
class Kept:
    """Weak references to abandoned objects, by kind of abandonment."""

    left: dict[str, list[weakref.ref[Any]]] = field(default_factory=dict)

    def add(self, how: str, thing: object) -> None:
        """Keep a weak reference to an object, if its type allows one."""
        with suppress(TypeError):
            self.left.setdefault(how, []).append(weakref.ref(thing))

    def alive(self) -> list[str]:
        """Return the kinds of abandonment of which several objects are still alive.

        One may be the last of its kind.
        """
        gc.collect()
        deadline = time.monotonic() + 2.0
        while True:
            alive = [
                how for how, refs in self.left.items() if sum(ref() is not None for ref in refs) > 1
            ]
            if not alive or time.monotonic() > deadline:
                return alive
            time.sleep(0.05)
            gc.collect()


# --------------------------------------------------------------------------- streams


@check(
    "lifecycle.abandoned",
    "Streams and iterators that are not begun, dropped, closed, cancelled or timed out MUST free "
    "everything, and give their places to the next request",
    (*SPEAKING, *_ITERATORS),
    broad=True,
)
def abandoned(subject: Subject) -> None:
    slots = {"parallel_slots": 2} if subject.declares(Capability.PARALLEL) else {}
    with quick_collections(), subject.loaded(**slots) as model:
        wanted = {way: run(subject, way, model, asked(2), _TOKENS) for way in _readable(subject)}
        leftovers = Kept()

        def once() -> None:
            for way, ends in _ends(subject).items():
                for name, end in ends.items():
                    what = f"a {way.name} that is {name}"
                    leave = partial(
                        _leave, subject, model, way, end, f"{way.name}, {name}", leftovers
                    )
                    promptly(subject, leave, what)
            for way, rows in wanted.items():
                answers = run(subject, way, model, asked(2), _TOKENS)
                same_rows(subject, rows, answers, f"{way.name} after abandoned ones")

        grown = growing(_ROUNDS, once, _LEAST, _active(subject, model))
        must(not grown, f"these grow with each round of abandoned streams: {grown}")
        alive = leftovers.alive()
        must(
            not alive,
            f"these are still referenced: {alive}; drop references to streams that have ended",
        )
    goes_on(subject, [row.answer.tokens or row.numbers for rows in wanted.values() for row in rows])


def _readable(subject: Subject) -> list[Way]:
    return ways(subject, *SPEAKING, *_ITERATORS)


def _ends(subject: Subject) -> dict[Way, dict[str, Callable[[Any], object]]]:
    return {way: _OF_STREAMS if way.single else _OF_ITERATORS for way in _readable(subject)}


def _leave(
    subject: Subject,
    model: TextModel,
    way: Way,
    end: Callable[[Any], object],
    how: str,
    leftovers: Kept,
) -> None:
    """Open one, end it, and drop it; what a stop raises is for other checks."""
    stop: dict[str, Any] = {}
    if end is _cancelled:
        stop = {"cancel": CancelAfter(2)}
    elif end is _timed_out:
        stop = {"timeout": _AT_ONCE}
    options = way.options(subject, _TOKENS) | stop
    with suppress(CoreError):
        stream: Any = _opened(model, way, options)
        leftovers.add(how, stream)
        try:
            end(stream)
        finally:
            del stream
    gc.collect()  # a stream may hold itself


def _opened(model: Any, way: Way, options: dict[str, Any]) -> Any:
    prompts = asked(2)
    if way.single:
        return opened(Capability(way.name), model, prompts[0], options)
    if way.name is Capability.BATCH_STREAMING:
        return model.batch_stream(prompts, **options)
    return model.classify_iter(iter(prompts), **options)


def _never_begun(stream: Any) -> None:
    """Do nothing."""


def _dropped(stream: Any) -> None:
    next(stream, None)


def _closed(stream: Any) -> None:
    next(stream, None)
    if hasattr(stream, "close"):  # an iterator need not have one
        stream.close()


def _closed_unread(stream: Any) -> None:
    if hasattr(stream, "close"):
        stream.close()


def _cancelled(stream: Any) -> None:
    list(stream)


def _timed_out(stream: Any) -> None:
    list(stream)


_OF_ITERATORS: dict[str, Callable[[Any], object]] = {
    "never begun": _never_begun,
    "dropped": _dropped,
    "closed": _closed,
}
_OF_STREAMS = _OF_ITERATORS | {
    "closed unread": _closed_unread,
    "cancelled": _cancelled,
    "timed out": _timed_out,
}


def _active(subject: Subject, model: Any) -> Callable[[], int]:
    """Return a function that returns the active bytes that the backend reports."""
    if not subject.declares(Capability.MEMORY_REPORTING):
        return lambda: 0
    return lambda: int(model.memory().active_bytes)


# --------------------------------------------------------------------------- failures


@check(
    "lifecycle.failures",
    "Requests that fail MUST keep no resources, however many they are, and the next one works",
    broad=True,
)
def failures(subject: Subject) -> None:
    prompts, callers = asked(2), ways(subject)
    model = subject.model
    wanted = {way: run(subject, way, model, prompts, _TOKENS) for way in callers}

    def once() -> None:
        for way in callers:
            for prompt, stop in _wrong(subject):
                fail = partial(_fail, model, way, prompt, way.options(subject, _TOKENS) | stop)
                promptly(subject, fail, f"{way.name} of {prompt!r:.40} with {sorted(stop)}")
        for way, rows in wanted.items():
            answers = run(subject, way, model, prompts, _TOKENS)
            same_rows(subject, rows, answers, f"{way.name} after requests that failed")

    grown = growing(_ROUNDS, once, _LEAST, _active(subject, model))
    must(not grown, f"these grow with each round of failed requests: {grown}")


def _wrong(subject: Subject) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield prompts and options with which a request fails: at the call, at once, and midway."""
    yield "", {}
    if subject.model.info.context_length <= _LONGEST:
        yield "a, " * subject.model.info.context_length, {}
    yield asked(1)[0], {"timeout": -1.0}
    yield asked(1)[0], {"no_such_option": 1}
    for stop in ({"cancel": already_set()}, {"cancel": CancelAfter(3)}, {"timeout": _AT_ONCE}):
        yield asked(1)[0], stop


def _fail(model: TextModel, way: Way, prompt: str, options: dict[str, Any]) -> None:
    with suppress(CoreError, TypeError):  # what it raises is for other checks
        way.ask(model, [prompt, prompt + "b"], options)


# --------------------------------------------------------------------------- loads


@check(
    "lifecycle.loads",
    "Models that are loaded, used and closed MUST free everything, however many they are: keep no "
    "thread, no descriptor, none of their weights",
    broad=True,
)
def loads(subject: Subject) -> None:
    leftovers, models, callers = Kept(), list[TextModel](), ways(subject)
    before, start = holdings(), time.perf_counter()
    size = _load_and_close(subject, callers, leftovers, models) - before.resident_bytes
    seconds_a_load = time.perf_counter() - start
    rounds = max(1, min(4, int(_LOADS_SECONDS / seconds_a_load)))
    if seconds_a_load > _SLOW_LOAD:
        error = raised(models[0].close)
        must(error is None, f"a second close() raised {error!r}")
        leave_out(f"several loads: one takes {seconds_a_load:.0f} s")
        return

    # Of its weights, half would show; what frees them is close(), for the models are still held.
    if size < _LARGE:
        leave_out(f"the memory of this process: a model adds {size} bytes to it")
    active = _active(subject, subject.model)
    weights = max(size, _LARGE) // 2 + _tokenizer(subject.path)
    least = Holdings(1, 1, weights, max(1 << 9, active() // 200))
    grown = growing(
        rounds, lambda: _load_and_close(subject, callers, leftovers, models), least, active
    )
    must(
        not grown,
        f"these grow with each model that is loaded, used and closed: {grown}: free all in close() "
        "also while the model object is still referenced",
    )
    models.clear()
    alive = leftovers.alive()
    must(not alive, f"several models that were closed and dropped are still referenced: {alive}")


def _tokenizer(path: str) -> int:
    """Return the bytes of a tokenizer, which a closed model may keep while it is referenced."""
    place = Path(path).expanduser()
    if place.is_file():
        return _OF_TEXT * min(place.stat().st_size, _LARGE)
    texts = (file for kind in ("json", "txt", "model") for file in place.glob(f"*.{kind}"))
    return _OF_TEXT * sum(file.stat().st_size for file in texts)


def _load_and_close(
    subject: Subject, callers: list[Way], leftovers: Kept, models: list[TextModel]
) -> int:
    """Use a model of its own; the memory of the process while it was loaded."""
    model = subject.load()
    models.append(model)
    leftovers.add("a model", model)
    for way in callers:
        run(subject, way, model, asked(1), 2)
    resident = holdings().resident_bytes
    promptly(subject, model.close, "close() of a model that was used")
    return resident
