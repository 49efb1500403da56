"""Checks of close() under way: streams open, requests submitted, calls in other threads.

Earlier requests end with their complete answer, or with ModelClosedError and their tokens so far.
They never hang, and never look complete when they are not. Later requests are refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, cast

from core.errors import ModelBusyError, ModelClosedError
from core.extensions import BatchStreaming, ClassifyStreaming
from core.protocols import Capability, TextModel
from core.types import Token
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, Answer, opened, speak
from core_conformance.checking.budget import pass_seconds, within
from core_conformance.checking.calls import close_quietly, ending, promptly, raised, together
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import (
    BATCHES,
    READERS,
    asked,
    run,
    same_rows,
    timed,
    undisturbed,
)
from core_conformance.checking.ways.table import Row, Way, ways

_LENGTH = 40  # tokens of a stream that is to be open when its model is closed
_ROWS, _TOKENS = 18, 6
_SHARES = (0.5, 0.1, 0.8)
_ITERATORS = (Capability.BATCH_STREAMING, Capability.CLASSIFY_STREAMING)
_IN_LINE = 0.3  # seconds after which those that have to wait do so
_TAKEN = 2  # results of an iterator that is then left


@dataclass(frozen=True, slots=True)
class Held:
    """A stream that is open, and the tokens that were read of it."""

    way: Way
    stream: Any
    read: tuple[Token, ...]


# --------------------------------------------------------------------------- streams


@check(
    "lifecycle.close-streams",
    "close() with streams open and requests submitted MUST return and end them; one that was cut "
    "off never says that it is complete",
    SPEAKING,
    broad=True,
)
def close_under_streams(subject: Subject) -> None:
    prompt, tokens = asked(1)[0], min(_LENGTH, subject.model.info.context_length // 3)
    wanted = {
        way.name: run(subject, way, subject.model, [prompt], tokens)
        for way in ways(subject, *SPEAKING)
    }
    for count in (1, 0, 3):
        with closing(subject.load()) as model:
            streams = _held(subject, model, prompt, tokens, count)
            what = f"close() with {len(streams)} streams open, {count} tokens read of each,"
            promptly(subject, model.close, what)
            for one in streams:
                what = f"{one.way.name}, whose model was closed after {count} tokens,"
                _cut_off(subject, one, wanted[one.way.name], what)
    goes_on(subject, [row.answer.tokens for rows in wanted.values() for row in rows])


def _held(subject: Subject, model: TextModel, prompt: str, tokens: int, count: int) -> list[Held]:
    """Open streams of every kind; more than there are slots if they can be submitted."""
    begun: list[Held] = []
    streams = ways(subject, *SPEAKING)
    submitted = [way for way in streams if way.name is Capability.SUBMITTING]
    for way in (*streams, *submitted * 4):
        try:
            stream = opened(Capability(way.name), model, prompt, way.options(subject, tokens))
            some = count if len(begun) < 2 else 0  # queued streams have none yet
            begun.append(Held(way, stream, tuple(islice(stream, some))))
        except ModelBusyError:  # it would wait for this thread
            continue
    return begun


def _cut_off(subject: Subject, begun: Held, wanted: list[Row], what: str) -> None:
    end = promptly(subject, partial(ending, lambda: begun.stream), what)
    answer = Answer(begun.read + end.tokens, end.reason, wanted[0].answer.prompt)
    error = end.error
    if error is None and len(answer.tokens) < len(wanted[0].answer.tokens):
        error = ModelClosedError()  # it ended in peace, and its reason may say so
    same_rows(subject, wanted, [Row(answer, error)], what, ModelClosedError)


# --------------------------------------------------------------------------- iterators


@check(
    "lifecycle.close-iterators",
    "A batch_stream or classify_iter that is half read when its model is closed MUST give the rest "
    "or raise ModelClosedError: it never ends as if there were no more",
    _ITERATORS,
    broad=True,
)
def close_under_iterators(subject: Subject) -> None:
    prompts, wanted = asked(_ROWS), dict[Way, list[Row]]()
    for way in ways(subject, *_ITERATORS):
        wanted[way] = run(subject, way, subject.model, prompts, _TOKENS)
        undisturbed(wanted[way], f"{way.name} of sound prompts")
        with closing(subject.load()) as model:
            left = _Left(way, subject, model, prompts)
            left.take(_TAKEN)
            promptly(subject, model.close, f"close() with a {way.name} half read")
            what = f"{way.name}, whose model was closed after {_TAKEN} results,"
            same_rows(
                subject, wanted[way], promptly(subject, left.rest, what), what, ModelClosedError
            )

    with closing(subject.load()) as model:
        unread = [_Left(way, subject, model, prompts) for way in wanted]
        promptly(subject, model.close, "close() with iterators that were not begun")
        for left in unread:
            what = "an iterator that was begun when its model was closed"
            rows = promptly(subject, left.rest, what)
            errors = [row.error for row in rows]
            must(
                all(isinstance(error, ModelClosedError) for error in errors),
                f"{what} gave {rows!r:.200}: it must raise ModelClosedError",
            )


class _Left:
    """An iterator that is read in two parts; its results as rows."""

    def __init__(
        self, way: Way, subject: Subject, model: TextModel, prompts: Sequence[str]
    ) -> None:
        self._way, self._prompts = way, prompts
        self._found: list[Any] = []
        options = way.options(subject, _TOKENS)
        if way.name is Capability.BATCH_STREAMING:
            self._results: Any = cast("BatchStreaming", model).batch_stream(prompts, **options)
        else:
            given = iter(prompts)
            self._results = cast("ClassifyStreaming", model).classify_iter(given, **options)

    def take(self, count: int) -> None:
        """Read this many results."""
        self._found += islice(self._results, count)

    def rest(self) -> list[Row]:
        """Read the others, and put all of them together."""
        given, results = self._found, self._results

        class Again:
            """A model that gives out what is there already, and then the rest."""

            def batch_stream(self, *_: object, **__: object) -> Any:
                yield from given
                yield from results

            classify_iter = batch_stream

        return self._way.ask(cast("TextModel", Again()), self._prompts, {})


# --------------------------------------------------------------------------- calls


@check(
    "lifecycle.close-calls",
    "close() while other threads call, and from two threads at once, MUST return; each call then "
    "has its results or ModelClosedError, and no later one works",
    (*BATCHES, *READERS),
    broad=True,
)
def close_under_calls(subject: Subject) -> None:
    prompts, callers = asked(_ROWS), ways(subject, *BATCHES, *READERS)
    timings = [timed(subject, way, subject.model, prompts, _TOKENS) for way in callers]
    wanted = [rows for rows, _ in timings]
    whole = sum(seconds for _, seconds in timings)
    cost = whole / pass_seconds(subject)

    for share in within(subject, _SHARES, lambda _: cost, "shares of the time until close()"):
        with closing(subject.load()) as model:
            answers = _closed_meanwhile(subject, model, callers, prompts, share * whole)
            for way, own, rows in zip(callers, wanted, answers, strict=True):
                what = f"{way.name} in a thread, while two others closed its model,"
                same_rows(subject, own, rows, what, ModelClosedError)

            # What was closed under way stays closed, and touches no other.
            for way in callers:
                rows = run(subject, way, model, prompts[:1], 1)
                errors = [row.error for row in rows]
                must(
                    all(isinstance(error, ModelClosedError) for error in errors),
                    f"{way.name} of a model that was closed under way gave {rows!r:.200}",
                )

    again = run(subject, callers[0], subject.model, prompts, _TOKENS)
    same_rows(subject, wanted[0], again, "another load, alongside models that were closed")


@check(
    "lifecycle.close-waiting",
    "close() MUST end the calls that are queued after an open stream: each has its results or "
    "ModelClosedError",
    SPEAKING,
    broad=True,
)
def close_under_a_line(subject: Subject) -> None:
    prompts, callers = asked(2), ways(subject)
    wanted = [run(subject, way, subject.model, prompts, 2) for way in callers]
    for way, own in zip(callers, wanted, strict=True):
        undisturbed(own, f"{way.name} of sound prompts")
    one_slot = {"parallel_slots": 1} if subject.declares(Capability.PARALLEL) else {}
    with closing(subject.load(**one_slot)) as model:
        stream = speak(subject, model, prompts[0], max_tokens=_LENGTH)
        next(stream, None)
        answers = _closed_meanwhile(subject, model, callers, prompts, _IN_LINE, 2)
        close_quietly(stream)
    for way, own, rows in zip(callers, wanted, answers, strict=True):
        what = f"{way.name} queued after an open stream, when the model was closed,"
        same_rows(subject, own, rows, what, ModelClosedError)
    goes_on(subject, [row.answer.tokens for rows in wanted for row in rows])


def _closed_meanwhile(
    subject: Subject,
    model: TextModel,
    callers: Sequence[Way],
    prompts: Sequence[str],
    seconds: float,
    tokens: int = _TOKENS,
) -> list[list[Row]]:
    """Return the rows of each caller.

    Two threads close the model this many seconds after their calls.
    """

    def close() -> list[Row]:
        time.sleep(seconds)
        error = raised(model.close)
        must(error is None, f"close() alongside calls, and from two threads, raised {error!r}")
        return []

    def call(way: Way) -> list[Row]:
        return way.ask(model, prompts, way.options(subject, tokens))

    calls: list[Callable[[], list[Row]]] = [partial(call, way) for way in callers]
    calls += [close, close]
    what = f"{len(callers)} calls, and close() by two threads {seconds:.3g} s after them,"
    return promptly(subject, lambda: together(*calls), what)[: len(callers)]
