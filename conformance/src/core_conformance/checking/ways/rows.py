"""Rows of the ways in which prompts enter: run in another thread, and compared."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.errors import GenerationCancelled
from core.protocols import Capability, TextModel
from core_conformance.checking.ask import PLAIN
from core_conformance.checking.calls import PROMPTS, promptly
from core_conformance.checking.check import must
from core_conformance.checking.compare import near, same_answers
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.table import Row, Way

_TEXTS = (*PROMPTS, *PLAIN)


def asked(count: int) -> tuple[str, ...]:
    """Return ``count`` different prompts."""
    rounds = range(1 + count // len(_TEXTS))
    return tuple(text + f" {n}" * (n > 0) for n in rounds for text in _TEXTS)[:count]


def run(
    subject: Subject,
    way: Way,
    model: TextModel,
    prompts: Sequence[str],
    tokens: int,
    **options: Any,
) -> list[Row]:
    """Run the call in another thread and return its rows; `Violation` if it does not end."""
    given = way.options(subject, tokens) | options
    what = f"{way.name} of {len(prompts)} prompts with {sorted(options)}"
    return promptly(subject, lambda: way.ask(model, prompts, given), what)


def timed(
    subject: Subject,
    way: Way,
    model: TextModel,
    prompts: Sequence[str],
    tokens: int,
    **options: Any,
) -> tuple[list[Row], float]:
    """Do as `run` does, and say how many seconds it took."""
    start = time.perf_counter()
    rows = run(subject, way, model, prompts, tokens, **options)
    return rows, time.perf_counter() - start


def undisturbed(rows: Sequence[Row], what: str) -> None:
    """Raise `Violation` when a row of sound prompts has an error."""
    errors = [row.error for row in rows if row.error is not None]
    must(not errors, f"{what} gave {len(errors)} of {len(rows)} sound prompts {errors[:1]}")


def same_rows(
    subject: Subject,
    wanted: Sequence[Row],
    rows: Sequence[Row],
    what: str,
    *stopped: type[Exception],
) -> None:
    """Raise `Violation` unless each row is as wanted, or ``stopped`` after a part of its tokens.

    No row is missing, and each is in its place.
    """
    must(len(rows) == len(wanted), f"{what} gave {len(rows)} rows of {len(wanted)}")
    pairs = []
    for place, (own, row) in enumerate(zip(wanted, rows, strict=True)):
        here = f"{what}: row {place}"
        if row.error is None:
            _same_numbers(subject, own, row, here)
            pairs.append((own.answer, row.answer))
        else:
            _is_stopped(row, here, stopped)
            count = len(row.answer.tokens)
            part = replace(own.answer, tokens=own.answer.tokens[:count], finish_reason=None)
            pairs.append((part, replace(row.answer, finish_reason=None)))
    same_answers(subject, pairs, what)


def _same_numbers(subject: Subject, own: Row, row: Row, what: str) -> None:
    must(
        len(own.numbers) == len(row.numbers)
        and all(near(subject, *both) for both in zip(own.numbers, row.numbers, strict=True)),
        f"{what} has {row.numbers}, expected {own.numbers}",
    )


def _is_stopped(row: Row, what: str, stopped: tuple[type[Exception], ...]) -> None:
    names = " or ".join(kind.__name__ for kind in stopped)
    must(
        isinstance(row.error, stopped),
        f"{what} has the error {row.error!r}: expected {names or 'none'}",
    )
    reason = row.answer.finish_reason
    if isinstance(row.error, GenerationCancelled):
        must(
            reason in ("cancelled", None),
            f"{what} was cancelled, but its finish_reason is {reason!r}",
        )
    must(
        reason not in ("stop", "length"),
        f"{what} has {row.error!r}, yet its finish_reason is {reason!r}, as if it were complete",
    )


BATCHES = (Capability.BATCH_GENERATE, Capability.BATCH_STREAMING)
READERS = (
    Capability.CLASSIFY,
    Capability.LABEL_SENTENCES,
    Capability.CLASSIFY_STREAMING,
    Capability.SCORING,
    Capability.ATTENTION_INSPECTOR,
)
