"""Many draws, against the distribution that the logits tell: a test without false alarms.

A filter that takes away too much lets nothing wrong through: only counting shows it. Many draws
come from one prompt repeated in a call, which backends may compute once.
"""

from __future__ import annotations

import math
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from core.errors import UnsupportedOptionError
from core.protocols import Capability
from core_conformance.checking import ask, budget
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import Answer, logits, read, seeds, token, tokenizing
from core_conformance.checking.check import check, leave_out, must
from core_conformance.checking.compare import log_softmax
from core_conformance.checking.draws import multinomial
from core_conformance.checking.draws.cases import ask_in_form, options, shown
from core_conformance.checking.draws.frequencies import Warmth, follow
from core_conformance.checking.draws.judging import SURE, draws, step_cost
from core_conformance.checking.draws.operations import draw, drawing, equal_rows
from core_conformance.checking.draws.oracle import Step
from core_conformance.checking.draws.pairwise import pairwise
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


_FACTORS: dict[str, Sequence[Any]] = {
    "temperature": (0.7, 1.5, 4.0),
    "top_k": (0, 2, 8),
    "typical_p": (1.0, 0.5, 0.8),
    "top_p": (1.0, 0.5, 0.8),
    "min_p": (0.0, 0.05, 0.3),
    "repeat_penalty": (1.0, 1.5, 0.6),
}
_CANDIDATES = (*ask.PLAIN, *ask.REPEATING, ask.LONG, ask.SHORT)
_PROMPTS = 3  # of the candidates
_MOST, _LEAST, _STREAMS = 128, 32, 64  # draws
_SEEDS = 4096
_EVIDENCE = (Capability.CLASSIFY, Capability.LOGITS, Capability.TOKENIZING)

Draw = Callable[[str, int, dict[str, Any]], list[int | None]]
"""The tokens of that many draws after a prompt, with these options."""


@check(
    "frequencies.classify",
    "Rows of classify MUST be drawn as often as their logits say, with options in pairs",
    *_EVIDENCE,
    broad=True,
)
def of_classify(subject: Subject) -> None:
    def draw(prompt: str, count: int, options: dict[str, Any]) -> list[int | None]:
        return [token(row).id for row in ask.classify(subject, [prompt] * count, **options)]

    _follow(subject, "classify", draw, _MOST)


@check(
    "frequencies.batch",
    "Rows of batch_generate MUST be drawn as often as their logits say, with options in pairs",
    Capability.BATCH_GENERATE,
    *_EVIDENCE,
    broad=True,
)
def of_batches(subject: Subject) -> None:
    def draw(prompt: str, count: int, options: dict[str, Any]) -> list[int | None]:
        rows = subject.model.batch_generate([prompt] * count, max_tokens=1, **options)
        return [next((token.id for token in ask.answer(row).tokens), None) for row in rows]

    _follow(subject, "batch_generate", draw, _STREAMS)


@check(
    "frequencies.generate",
    "Draws of generate with many seeds MUST be as often as the logits say, with options in pairs",
    Capability.GENERATE,
    *_EVIDENCE,
    broad=True,
)
def of_streams(subject: Subject) -> None:
    fresh = iter(seeds(subject, _SEEDS))  # for each draw another, or cases would be one's echoes

    def draw(prompt: str, count: int, options: dict[str, Any]) -> list[int | None]:
        streams = (
            subject.model.generate(prompt, **{"max_tokens": 1, **options, **seed})
            for seed in islice(fresh, count)
        )
        return [next((token.id for token in read(stream).tokens), None) for stream in streams]

    _follow(subject, "generate", draw, _STREAMS)


def _follow(subject: Subject, call: str, draw: Draw, most: int) -> None:
    """Draw with each case, as many times as the passes for all of them allow."""
    cases = pairwise(_FACTORS, subject.effort.seed)
    passes = _passes_for_one(subject, draw)
    count = max(_LEAST, min(most, int(budget.passes(subject) / len(cases) / passes)))
    cost = step_cost(subject)
    rows, warmths, heard = _open(subject), defaultdict[str, Warmth](Warmth), list[int]()
    fitting = budget.within(subject, enumerate(cases), lambda _: passes * count + cost, "cases")
    for number, case in fitting:
        prompt, row = rows[number % _PROMPTS]
        drawn, accepted = ask_in_form(
            "keywords", options(case), {}, lambda prompt=prompt, **own: draw(prompt, count, own)
        )
        seen = tokenizing(subject).encode(prompt)
        step = Step(row, seen, draws(accepted), subject.tolerance)
        shares = step.shares()
        follow(shown(call, prompt, accepted), drawn, shares)
        heard += [token for token in drawn if token is not None]
        for name in accepted:
            warmths[name].add(drawn, shares, step.heights(shares))

    goes_on(subject, [heard], Capability(call))
    for name, warmth in warmths.items():
        must(
            warmth.surprise < SURE,
            f"{call} with {name} and other options draws tokens that are, together, too likely "
            f"or too unlikely: such draws occur once in e**{warmth.surprise:.0f} times. Check the "
            "temperature that is applied",
        )


def _open(subject: Subject) -> list[tuple[str, array[float]]]:
    """Return the prompts whose logprobs vary most, so that temperature shows, with their logits."""
    rows = zip(_CANDIDATES, ask.logits(subject, _CANDIDATES), strict=True)
    return sorted(rows, key=lambda pair: _variance(pair[1]), reverse=True)[:_PROMPTS]


def _variance(row: Sequence[float]) -> float:
    """Return the variance of the logprob of a draw."""
    logprobs = [value for value in log_softmax(row) if value > -math.inf]
    mean = math.fsum(math.exp(value) * value for value in logprobs)
    return math.fsum(math.exp(value) * (value - mean) ** 2 for value in logprobs)


def _passes_for_one(subject: Subject, draw: Draw) -> float:
    """Return the cost of one draw in passes; below 1 if duplicate prompts are computed once."""
    start = time.perf_counter()
    draw(_CANDIDATES[0], 8, {"temperature": 1.0})
    return (time.perf_counter() - start) / 8 / budget.pass_seconds(subject)
