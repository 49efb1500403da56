"""How often each token is drawn, with filters, penalty and temperature in pairs.

A filter that takes away too much lets nothing wrong through: only counting shows it. Many draws
come from one prompt repeated in a call, which backends may compute once.
"""

from __future__ import annotations

import math
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from core.protocols import Capability
from core_conformance.checking import ask, budget
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import read, seeds, token, tokenizing
from core_conformance.checking.check import check, must
from core_conformance.checking.compare import log_softmax
from core_conformance.checking.draws.cases import ask_in_form, options, shown
from core_conformance.checking.draws.frequencies import Warmth, follow
from core_conformance.checking.draws.judging import SURE, draws, step_cost
from core_conformance.checking.draws.oracle import Step
from core_conformance.checking.draws.pairwise import pairwise
from core_conformance.checking.subject import Subject

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
