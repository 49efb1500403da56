"""Checks of a cancel that is set on the way: at any look at it, in every operation and phase.

The cancel counts the looks, and is set from one of them on: so each place at which a backend stops
is tried, whatever the machine's speed. Behind each the model has to work as before.
"""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.errors import GenerationCancelled
from core.protocols import Capability, TextModel
from core_conformance.checking import tally
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, Answer, speak, voice
from core_conformance.checking.budget import pass_seconds, passes, within
from core_conformance.checking.calls import (
    CancelAfter,
    encoded_length,
    ending,
    greedy_options,
    promptly,
    unless_refused,
)
from core_conformance.checking.check import must, testable
from core_conformance.checking.compare import same_answers
from core_conformance.checking.registry import check
from core_conformance.checking.rows import (
    BATCHES,
    READERS,
    Row,
    Way,
    asked,
    run,
    same_rows,
    timed,
    undisturbed,
    ways,
)
from core_conformance.checking.subject import Subject

_ROWS, _TOKENS = 7, 8
_TRIES = 3  # of what a machine's noise could explain once
_ALONE = 0.25  # seconds without a look, after which nobody looks any more
_SLOW = 0.2  # seconds of a prefill from which on a cancel can be set within it
_ONE_CHUNK, _LONG = 512, 640  # tokens: a longer prompt is read in chunks


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
        goes_on(subject, [row.answer.tokens for row in wanted], way.name)
    cost = 2 * seconds / pass_seconds(subject)
    looks = calm.seen
    spread = range(1, looks + 2) if subject.effort.deep else _spread(looks)
    yield from (Turn(way, at, looks, wanted, cost) for at in spread)


def _spread(looks: int) -> list[int]:
    """The first looks, some between them and the last, and one that does not come."""
    places = {1, 2, 3, 4, *(looks * part // 8 for part in range(1, 9)), looks + 1}
    return sorted(place for place in places if 0 < place <= looks + 1)


def _distance(at: int, looks: int) -> float:
    """First what lies in the middle, for a short run too."""
    return abs(at / (looks + 1) - 0.5)


def _cancelled(subject: Subject, turn: Turn, prompts: tuple[str, ...]) -> None:
    way, model = turn.way, subject.model
    what = f"{way.name} of {len(prompts)} prompts, whose cancel is set at look {turn.at}"
    for _ in range(_TRIES):  # who looks while it waits may do so when the work is just done
        cancel = CancelAfter(turn.at)
        found = run(subject, way, model, prompts, _TOKENS, cancel=cancel)
        same_rows(subject, turn.wanted, found, what, GenerationCancelled)
        stopped = [row for row in found if row.error is not None]
        must(bool(cancel.heard or not stopped), f"{what}, stopped before it was set: {found}")
        again = run(subject, way, model, prompts, _TOKENS)
        same_rows(subject, turn.wanted, again, f"{what}, and then again without it")
        if stopped or not cancel.heard or 2 * turn.at > turn.looks:
            break
    else:
        must(
            False,
            f"{what} of {turn.looks}, gave all {len(found)} prompts their whole answers: the "
            "backend was told that it is set, and went on to the end",
        )


# --------------------------------------------------------------------------- a long prompt


@check(
    "cancel.prefill-midway",
    "A cancel that is set at any look while a prompt is read MUST be heard before its first token, "
    "behind the last chunk of a long one too",
    SPEAKING,
    broad=True,
)
def prefill(subject: Subject) -> None:
    prompt, length = _long_prompt(subject)
    with unless_refused("cancel"):
        _first_token(subject, prompt)  # the first of its kind may be slower
        token, looks, seconds = _first_token(subject, prompt)
        goes_on(subject, [token])
        cost = max(1.0, seconds / pass_seconds(subject))
        turns = [at for at in _spread(looks) if at <= max(1, looks // 2)]
        for at in within(subject, turns, lambda at: cost * at / looks, "looks in a long prompt"):
            _heard_at(subject, prompt, at, looks)
        if length <= _ONE_CHUNK or seconds < _SLOW:
            tally.left_out(f"a cancel between two looks: {length} tokens take {seconds:.3f} s")
            return
        for share in within(subject, (0.5, 0.8), lambda _: cost, "cancels within a long prompt"):
            _heard_behind_the_last_chunk(subject, prompt, share, seconds)


def _long_prompt(subject: Subject) -> tuple[str, int]:
    """A prompt of more than a chunk, where context and passes have room for it; its length."""
    room = subject.model.info.context_length * 5 // 8
    most = min(room, _LONG, max(64, passes(subject) * 20 // 2))
    count = most // 3  # a number and its blank are at most three tokens
    length = encoded_length(subject, _numbers(count))
    if length is None:
        return _numbers(count), count
    text = _numbers(count * most // max(1, length))
    return text, encoded_length(subject, text) or 0


def _numbers(count: int) -> str:
    return " ".join(str(number % 10) for number in range(max(1, count)))


def _first_token(subject: Subject, prompt: str) -> tuple[tuple[Any, ...], int, float]:
    """The first token, how many looks there were before it, and the seconds until it came."""
    calm, start = CancelAfter(), time.perf_counter()
    stream = speak(subject, subject.model, _fresh(prompt), max_tokens=1, cancel=calm)
    first = _first(stream)
    looks, seconds = calm.seen, time.perf_counter() - start
    must(not isinstance(first, Exception), f"a prompt of {len(prompt)} characters gave {first!r}")
    stream.close()
    return (() if first is None else (first,)), looks, seconds


_count = itertools.count()


def _fresh(prompt: str) -> str:
    """The prompt behind other first letters than before, so that nothing of it is kept."""
    front, back = divmod(next(_count) % 26**2, 26)
    return f"{chr(ord('A') + front)}{chr(ord('a') + back)}{prompt}"


def _heard_at(subject: Subject, prompt: str, at: int, looks: int) -> None:
    for _ in range(_TRIES):
        cancel = CancelAfter(at)
        stream = speak(subject, subject.model, _fresh(prompt), max_tokens=8, cancel=cancel)
        first = promptly(subject, partial(_first, stream), f"a prompt cancelled at look {at}")
        told = cancel.heard  # before this token
        stream.close()
        if isinstance(first, GenerationCancelled) or not told:
            must(True, "")
            return
    must(
        False,
        f"a cancel that was set at look {at} of {looks} of a long prompt gave {first!r}: "
        "GenerationCancelled comes in the place of the first token",
    )


def _heard_behind_the_last_chunk(
    subject: Subject, prompt: str, share: float, seconds: float
) -> None:
    """Set it by time, between two looks. Where the token comes soon behind that, it is excused."""
    early = (1 - share) * seconds
    for _ in range(_TRIES):
        cancel = CancelAfter()
        stream = speak(subject, subject.model, _fresh(prompt), max_tokens=8, cancel=cancel)
        timer, start = threading.Timer(share * seconds, setattr, (cancel, "now", True)), _now()
        timer.start()
        first = promptly(subject, partial(_first, stream), "a long prompt, cancelled by time")
        left = _now() - start - share * seconds
        timer.cancel()
        stream.close()
        if isinstance(first, GenerationCancelled) or left < 0.6 * early:
            must(True, "")
            return
    must(
        False,
        f"a cancel was set {left:.2f} s before the first token of a long prompt, which took "
        f"{seconds:.2f} s, and {first!r} came: look between chunks, and behind the last one",
    )


def _now() -> float:
    return time.perf_counter()


def _first(stream: Any) -> object:
    try:
        return next(stream, None)
    except Exception as error:  # noqa: BLE001 - the check looks at it
        return error


# --------------------------------------------------------------------------- others beside it


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
            what = f"beside one that is {name} behind {count} tokens"
            beside = partial(_beside, subject, model, prompt, other, count, stop)
            found = promptly(subject, beside, f"a stream {what}")
            same_answers(subject, [(own, found)], f"a stream alone, and {what}")


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
    """The answer to ``other``, beside a stream that is stopped behind ``count`` of its tokens.

    Without slots for two, the one begins when the other has ended.
    """
    cancel, both = CancelAfter(), subject.declares(Capability.PARALLEL)
    options = greedy_options(subject, _TOKENS)
    held = [speak(subject, model, prompt, **options, cancel=cancel)]
    kept = speak(subject, model, other, **options) if both else None
    tokens = []
    for _ in range(count):
        next(held[0], None)
        tokens += [token for token in (next(kept, None),) if token] if kept else []
    stop(held, cancel)
    kept = kept or speak(subject, model, other, **options)
    tokens += list(kept)
    return Answer(tuple(tokens), kept.finish_reason)


def _cancel(held: list[Any], cancel: CancelAfter) -> None:
    cancel.now = True
    error = ending(lambda: held[0]).error
    must(
        error is None or isinstance(error, GenerationCancelled),
        f"a cancelled stream raised {error!r}: it has to be GenerationCancelled",
    )


def _close(held: list[Any], cancel: CancelAfter) -> None:
    held[0].close()


def _drop(held: list[Any], cancel: CancelAfter) -> None:
    held.clear()
    gc.collect()  # a stream may hold itself


# --------------------------------------------------------------------------- behind the end


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
            f"the cancel of {name} is still looked at, {cancel.seen} times by now, though the call "
            "has ended: who looks at it has to end with the call",
        )


def _comes_to_rest(cancel: CancelAfter) -> bool:
    """Whether a moment comes in which nobody looks; it has had some time already."""
    for _ in range(8):
        seen = cancel.seen
        if cancel.times and time.perf_counter() - cancel.times[-1] > _ALONE:
            return True
        time.sleep(_ALONE)
        if cancel.seen == seen:
            return True
    return False
