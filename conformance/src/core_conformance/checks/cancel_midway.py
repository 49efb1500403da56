"""Checks of a cancel that is set on the way: at any look at it, in every operation and phase.

The cancel counts the looks, and is set from one of them on: so each place at which a backend stops
is tried, whatever the machine's speed. After each the model has to work as before.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.errors import GenerationCancelled
from core.protocols import Capability, TextModel
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, Answer, speak, voice
from core_conformance.checking.budget import pass_seconds, within
from core_conformance.checking.calls import (
    CancelAfter,
    ending,
    greedy_options,
    promptly,
    unless_refused,
)
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import same_answers
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

_ROWS, _TOKENS = 7, 8
_TRIES = 3  # of what a machine's noise could explain once
_ALONE = 0.25  # seconds without a look, after which polling has ended


@dataclass(frozen=True, slots=True)
class Turn:
    """An operation whose cancel is set at look ``at`` of the ``looks`` that a whole run has."""

    way: Way
    at: int
    looks: int
    wanted: list[Row]
    cost: float

    def __str__(self) -> str:
        return f"{self.way.name} at look {self.at} of {self.looks}"


@check(
    "cancel.streams-midway",
    "A stream whose cancel is set at any look MUST keep its first tokens, end with "
    "GenerationCancelled, and leave a model that works",
    SPEAKING,
    broad=True,
)
def streams(subject: Subject) -> None:
    _sweep(subject, SPEAKING, 1)


@check(
    "cancel.batches-midway",
    "Of a batch that is cancelled at any look, each row MUST be whole or stopped, in its place, "
    "with the tokens that it had, and the model work as before",
    (Capability.BATCH_GENERATE, Capability.BATCH_STREAMING),
    broad=True,
)
def batches(subject: Subject) -> None:
    _sweep(subject, BATCHES, _ROWS)


@check(
    "cancel.readers-midway",
    "classify, classify_iter, score and inspect_attention that are cancelled at any look MUST give "
    "each prompt its result or GenerationCancelled, in order, and leave a model that works",
    tuple(READERS),
    broad=True,
)
def readers(subject: Subject) -> None:
    _sweep(subject, READERS, _ROWS)


def _sweep(subject: Subject, among: tuple[Capability, ...], rows: int) -> None:
    prompts = asked(rows)
    with unless_refused("cancel"):
        turns = [turn for way in ways(subject, *among) for turn in _turns(subject, way, prompts)]
        turns.sort(key=lambda turn: _distance(turn.at, turn.looks))
        for turn in within(subject, turns, lambda turn: turn.cost, "cancels midway"):
            _cancelled(subject, turn, prompts)


def _turns(subject: Subject, way: Way, prompts: tuple[str, ...]) -> Iterator[Turn]:
    run(subject, way, subject.model, prompts, _TOKENS)
    calm = CancelAfter()
    wanted, seconds = timed(subject, way, subject.model, prompts, _TOKENS, cancel=calm)
    undisturbed(wanted, f"{way.name} with a cancel that is never set")
    if way.generates:
        goes_on(subject, [row.answer.tokens for row in wanted], Capability(way.name))
    cost = 2 * seconds / pass_seconds(subject)
    looks = calm.seen
    spread = range(1, looks + 2) if subject.effort.deep else _spread(looks)
    yield from (Turn(way, at, looks, wanted, cost) for at in spread)


def _spread(looks: int) -> list[int]:
    """Return the first looks, some between them and the last, and one that does not come."""
    places = {1, 2, 3, *(looks * part // 6 for part in range(1, 7)), looks + 1}
    return sorted(place for place in places if 0 < place <= looks + 1)


def _distance(at: int, looks: int) -> float:
    """Return the distance of a poll from the middle of the run; defined for short runs too."""
    return abs(at / (looks + 1) - 0.5)


def _cancelled(subject: Subject, turn: Turn, prompts: tuple[str, ...]) -> None:
    way, model = turn.way, subject.model
    what = f"{way.name} of {len(prompts)} prompts, whose cancel is set at look {turn.at}"
    for _ in range(_TRIES):  # who looks while it waits may do so when the work is just done
        cancel = CancelAfter(turn.at)
        rows = run(subject, way, model, prompts, _TOKENS, cancel=cancel)
        same_rows(subject, turn.wanted, rows, what, GenerationCancelled)

        stopped = [row for row in rows if row.error is not None]
        must(bool(cancel.heard or not stopped), f"{what}, stopped before it was set: {rows}")

        # One that is not set stops nothing, and counts the looks of a call that runs on.
        calm = CancelAfter()
        again = run(subject, way, model, prompts, _TOKENS, cancel=calm)
        same_rows(subject, turn.wanted, again, f"{what}, and then again with one that is not set")

        if stopped or not cancel.heard or 2 * turn.at > min(turn.looks, calm.seen):
            break
    else:
        must(
            False,
            f"{what} of {turn.looks}, gave all {len(rows)} prompts their complete answers: the "
            "backend saw that it was set, but continued to the end",
        )


# ------------------------------------------------------------------------ concurrent streams


@check(
    "cancel.neighbours",
    "A stream that is cancelled, closed or dropped MUST NOT change the one beside it, nor keep its "
    "place",
    SPEAKING,
    broad=True,
)
def neighbours(subject: Subject) -> None:
    prompt, other = asked(2)
    with unless_refused("cancel"), subject.loaded(**_slots(subject, 2)) as model:
        wanted = ending(lambda: speak(subject, model, other, **greedy_options(subject, _TOKENS)))
        must(wanted.error is None, f"a plain stream gave {wanted.error!r}")
        goes_on(subject, [wanted.tokens])
        own = Answer(wanted.tokens, wanted.reason, _continued(subject, other))
        ends = {"cancelled": _cancel, "closed": _close, "dropped": _drop}
        for count, (name, stop) in itertools.product((1, 0, 3), ends.items()):
            what = f"alongside one that is {name} after {count} tokens"
            beside = partial(_beside, subject, model, prompt, other, count, stop)
            answer = promptly(subject, beside, f"a stream {what}")
            same_answers(subject, [(own, answer)], f"a stream alone, and {what}")


def _slots(subject: Subject, count: int) -> dict[str, int]:
    return {"parallel_slots": count} if subject.declares(Capability.PARALLEL) else {}


def _continued(subject: Subject, prompt: str) -> str:
    return "" if voice(subject) is Capability.CHAT else prompt


def _beside(
    subject: Subject,
    model: TextModel,
    prompt: str,
    other: str,
    count: int,
    stop: Callable[[list[Any], CancelAfter], None],
) -> Answer:
    """Return the answer to ``other``, with a stream that is stopped after ``count`` of its tokens.

    Without slots for two, the one begins when the other has ended.
    """
    cancel, both = CancelAfter(), subject.declares(Capability.PARALLEL)
    options = greedy_options(subject, _TOKENS)
    opened = [speak(subject, model, prompt, **options, cancel=cancel)]
    neighbour = speak(subject, model, other, **options) if both else None
    tokens = []
    for _ in range(count):
        next(opened[0], None)
        tokens += [token for token in (next(neighbour, None),) if token] if neighbour else []
    stop(opened, cancel)
    neighbour = neighbour or speak(subject, model, other, **options)
    tokens += list(neighbour)
    return Answer(tuple(tokens), neighbour.finish_reason)


def _cancel(opened: list[Any], cancel: CancelAfter) -> None:
    cancel.now = True
    error = ending(lambda: opened[0]).error
    must(
        error is None or isinstance(error, GenerationCancelled),
        f"a cancelled stream raised {error!r}: expected GenerationCancelled",
    )


def _close(opened: list[Any], cancel: CancelAfter) -> None:
    opened[0].close()


def _drop(opened: list[Any], cancel: CancelAfter) -> None:
    opened.clear()
    gc.collect()  # a stream may hold itself


# --------------------------------------------------------------------------- after the end


@check(
    "cancel.let-go",
    "A cancel MUST NOT be looked at any more when its call has ended",
    broad=True,
)
def let_go(subject: Subject) -> None:
    tokens = []
    with unless_refused("cancel"):
        for way in ways(subject):
            for cancel in (CancelAfter(), CancelAfter(2)):
                run(subject, way, subject.model, asked(3), _TOKENS, cancel=cancel)
                tokens.append((way.name, cancel))
    testable(bool(tokens), "the backend takes no cancel")
    for name, cancel in tokens:
        must(
            _comes_to_rest(cancel),
            f"the cancel of {name} is still polled, {cancel.seen} times by now, though the call "
            "has ended: polling must end with the call",
        )


def _comes_to_rest(cancel: CancelAfter) -> bool:
    """Return whether the polling ends within a few moments."""
    for _ in range(8):
        seen = cancel.seen
        if cancel.times and time.perf_counter() - cancel.times[-1] > _ALONE:
            return True
        time.sleep(_ALONE)
        if cancel.seen == seen:
            return True
    return False
