"""Many draws, against the distribution that the logits tell: a test without false alarms."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

from core.errors import UnsupportedOptionError
from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.ask import Answer, logits, seeds
from core_conformance.checking.check import check, leave_out, must
from core_conformance.checking.compare import log_softmax
from core_conformance.checking.draws import multinomial
from core_conformance.checking.draws.operations import draw, drawing, equal_rows
from core_conformance.checking.subject import Subject

_PROMPT = ask.PLAIN[1]
_TEMPERATURES = {
    Capability.CLASSIFY: (1.0, 5.0, 100.0, 1e30),
    Capability.BATCH_GENERATE: (2.0, 100.0),
}
_HOT = 5.0
_DRAWS = 400
_FEW = 64  # draws; with fewer, only what is quite another distribution shows
_WIDEST = 24  # tokens that a filter leaves here, at most


@check(
    "sampling.draws",
    "Each row of a call without a seed MUST be drawn from softmax(logits / temperature), at any "
    "temperature",
    Capability.CLASSIFY,
    Capability.LOGITS,
    broad=True,
)
def rows_follow_the_logits(subject: Subject) -> None:
    (row,) = logits(subject, [_PROMPT])
    names = filter(subject.declares, _TEMPERATURES)
    cases = [(name, temperature) for name in names for temperature in _TEMPERATURES[name]]
    for name, temperature in cases:
        options = {"temperature": temperature}
        seconds = subject.effort.seconds / len(cases)
        drawn = equal_rows(subject, name, _PROMPT, _DRAWS, seconds, **options)
        _follows(subject, drawn, row, f"{name} of rows with {options}", temperature)


@check(
    "sampling.draws-seeded",
    "Draws with different seeds MUST follow softmax(logits / temperature), each operation's",
    Capability.CLASSIFY,
    Capability.LOGITS,
    Capability.SEED,
    broad=True,
)
def seeded_draws_follow_the_logits(subject: Subject) -> None:
    (row,) = logits(subject, [_PROMPT])
    names = [name for name in drawing(subject) if name is not Capability.CHAT]
    for name in names:
        options = {"temperature": _HOT}
        drawn = _seeded(subject, name, subject.effort.seconds / len(names), **options)
        _follows(subject, drawn, row, f"{name} with {options} and a seed for each", _HOT)


@check(
    "sampling.draws-filtered",
    "Tokens that a filter leaves MUST be drawn by softmax(logits / temperature) over these",
    Capability.CLASSIFY,
    Capability.LOGITS,
    broad=True,
)
def filtered_draws_follow_the_logits(subject: Subject) -> None:
    (row,) = logits(subject, [_PROMPT])
    cases = list(_filters(subject, row))
    if not cases:
        leave_out("filters: no two logits are far enough apart for a border between them")
    for count, option in cases:
        # The logits that the filter leaves, and draws with it.
        options = {"temperature": _HOT} | option
        least = sorted(row, reverse=True)[count - 1]
        left = [value if value >= least else -math.inf for value in row]

        try:
            seconds = subject.effort.seconds / len(cases)
            drawn = equal_rows(subject, Capability.CLASSIFY, _PROMPT, _DRAWS, seconds, **options)
        except UnsupportedOptionError as error:
            if error.option not in option:
                raise
            continue

        _follows(subject, drawn, left, f"classify of rows with {options}", _HOT)


def _follows(
    subject: Subject, drawn: Sequence[Answer], row: Sequence[float], what: str, temperature: float
) -> None:
    """Raise `Violation` unless first tokens come as often as ``row`` says.

    An answer without a token drew the end of the text, whose id is not known: the others are as
    likely as they are without it, or likelier by what the end has.
    """
    first = [answer.ids[0] for answer in drawn if answer.ids]
    end = _at_most(len(drawn) - len(first), len(drawn))
    if len(drawn) < _FEW or end > 0.5:
        leave_out(f"{what}: {len(drawn)} draws, {len(first)} of them with a token")
    if not first or end > 0.5:
        return
    slack = 2 * subject.tolerance / temperature - math.log1p(-end)
    wrong = multinomial.surprise(log_softmax([value / temperature for value in row]), first, slack)
    must(not wrong, f"{len(first)} draws after {_PROMPT!r}, {what}: {wrong}")


def _at_most(count: int, draws: int) -> float:
    """Return a bound on the probability of what came ``count`` times.

    0.0 for what never came at all.

    Bernstein's inequality, at the same level as the test's.
    """
    if not count:
        return 0.0
    share, reach = count / draws, -2 * math.log(multinomial.ALARM) / draws
    return min(1.0 - 1e-9, share + math.sqrt(share * reach) + reach)


def _seeded(subject: Subject, name: Capability, seconds: float, **options: Any) -> list[Answer]:
    end, answers = time.perf_counter() + seconds, list[Answer]()
    for seed in seeds(subject, _DRAWS // 2):
        answers += draw(subject, name, [_PROMPT], **options, **seed)
        if time.perf_counter() > end:
            break
    return answers


def _filters(subject: Subject, row: Sequence[float]) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield filters with the number of tokens that each surely leaves: its border is at a gap."""
    ranked = sorted(row, reverse=True)
    gaps = [ranked[count - 1] - ranked[count] for count in range(2, min(_WIDEST, len(row)))]
    if max(gaps, default=0.0) <= 4 * subject.tolerance + 1e-4:
        return
    count = 2 + gaps.index(max(gaps))
    yield count, {"top_k": count}
    yield count, {"min_p": math.exp((ranked[count - 1] + ranked[count]) / 2 - ranked[0])}

    # top_p ends within the last token that it leaves.
    chances = list(map(math.exp, log_softmax(ranked)))
    if chances[count - 1] > 8 * subject.tolerance + 1e-6:
        yield count, {"top_p": math.fsum(chances[: count - 1]) + chances[count - 1] / 2}
