"""Drawing: greedy, seeds, temperature and the filters, told by what comes out."""

from __future__ import annotations

from collections.abc import Sequence

from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import (
    EVEN,
    SPEAKING,
    Answer,
    generate,
    logits,
    seeds,
    tokenizing,
)
from core_conformance.checking.check import Violation, check, count_compared, must, testable
from core_conformance.checking.compare import difference, same_draws, same_speech
from core_conformance.checking.subject import Subject

_ASKED = ask.PLAIN[:3]
_DRAWS = 3  # of each prompt
_TIE_OR_NOT = (
    "draws that should equal the greedy answer vary, and whether at a tie is not visible: use a "
    "model whose best token leads, or declare LOGPROBS, or CLASSIFY and LOGITS"
)
_NO_STEPS = (
    "most answers are shorter than 3 tokens where all tokens are about as likely: use a model "
    "with a larger vocabulary"
)
_WARM = 10.0  # so warm that a filter which is left out lets something else through
_EVENLY = 1e4  # so hot that all tokens are about as likely
_EVEN_BEST = {"temperature": _EVENLY, "top_k": 8}
_SEEDS, _STEPS = 5, 3  # seeds that are tried; tokens, and seeds, that tell something
_LEAST = 5e-324  # the smallest float
_HOT = 50.0  # the logits of any model but one that allows a single token are near even here


@check(
    "sampling.greedy",
    "Greedy generation MUST be repeatable, whatever was asked in between",
    SPEAKING,
)
def greedy_is_repeatable(subject: Subject) -> None:
    first = [generate(subject, prompt, 5) for prompt in _ASKED]
    generate(subject, ask.SHORT, 2, temperature=_HOT)
    again = [generate(subject, prompt, 5, temperature=0.0) for prompt in _ASKED]
    same_speech(subject, list(zip(first, again, strict=True)), "greedy, twice")


@check(
    "sampling.greedy-ignores-seed",
    "At temperature 0 a seed MUST change nothing",
    SPEAKING,
    Capability.SEED,
)
def greedy_ignores_seeds(subject: Subject) -> None:
    pairs = [
        (generate(subject, prompt, 4), generate(subject, prompt, 4, seed=seed))
        for prompt, seed in zip(_ASKED, (0, 1, 2), strict=True)
    ]
    same_speech(subject, pairs, "greedy without and with a seed")


@check(
    "sampling.cold",
    "A temperature near 0 MUST give what greedy gives",
    SPEAKING,
)
def cold_is_greedy(subject: Subject) -> None:
    # A best token that is ahead by 0.02 loses at this temperature once in 10**8 draws.
    _is_greedy(subject, slack=0.02, temperature=0.001)


@check(
    "sampling.seed",
    "The same seed MUST give the same tokens, 0 and the largest seed too, whatever was drawn since",
    SPEAKING,
    Capability.SEED,
)
def seeds_repeat(subject: Subject) -> None:
    cases = [(prompt, seed) for prompt in _ASKED[:2] for seed in (0, 7, 2**32 - 1, 2**64 - 1)]
    first = [_drawn(subject, *case) for case in cases]
    generate(subject, ask.SHORT, 2, temperature=_HOT)
    again = [_drawn(subject, *case) for case in cases]
    for seed in {seed for _, seed in cases}:
        pairs = [
            pair
            for pair, (_, one) in zip(zip(first, again, strict=True), cases, strict=True)
            if one == seed
        ]
        same_draws(subject, pairs, f"seed={seed}, twice")


@check(
    "sampling.seeds-differ",
    "Different seeds MUST lead to different draws",
    SPEAKING,
    Capability.SEED,
)
def seeds_differ(subject: Subject) -> None:
    answers = [_drawn(subject, _ASKED[0], seed=seed) for seed in range(6)]
    must(
        len({answer.ids for answer in answers}) > 1,
        f"with {EVEN} the seeds 0 to 5 all gave {list(answers[0].ids)}",
    )


@check(
    "sampling.top-k-one",
    "top_k=1 MUST give what greedy gives, at any temperature",
    SPEAKING,
)
def top_k_one_is_greedy(subject: Subject) -> None:
    _is_greedy(subject, top_k=1, temperature=_WARM)


@check(
    "sampling.top-p-tiny",
    "A top_p near 0 MUST give what greedy gives, at any temperature",
    SPEAKING,
)
def tiny_top_p_is_greedy(subject: Subject) -> None:
    _is_greedy(subject, top_p=1e-6, temperature=_WARM)


@check(
    "sampling.coldest",
    "A temperature next to 0, the smallest float too, MUST give what greedy gives",
    SPEAKING,
    broad=True,
)
def coldest_is_greedy(subject: Subject) -> None:
    for temperature in (1e-6, 1e-30, _LEAST):
        _is_greedy(subject, slack=100 * temperature, temperature=temperature)


@check(
    "sampling.top-p-least",
    "A top_p next to 0, the smallest float too, MUST give what greedy gives, at any temperature",
    SPEAKING,
    broad=True,
)
def least_top_p_is_greedy(subject: Subject) -> None:
    for top_p in (1e-9, _LEAST):
        _is_greedy(subject, top_p=top_p, temperature=_WARM)


@check(
    "sampling.min-p-one",
    "min_p=1 MUST give what greedy gives, at any temperature",
    SPEAKING,
)
def min_p_one_is_greedy(subject: Subject) -> None:
    _is_greedy(subject, min_p=1.0, temperature=_WARM)


def _is_greedy(subject: Subject, slack: float = 0.0, **options: float) -> None:
    """Check that draws with these options equal the greedy answer, up to a tie."""
    free = [generate(subject, prompt, 3) for prompt in _ASKED]
    goes_on(subject, [answer.tokens for answer in free])
    drawn = [
        [generate(subject, prompt, 3, **options, **seed) for seed in seeds(subject, _DRAWS)]
        for prompt in _ASKED
    ]

    pairs = [(left, right) for left, group in zip(free, drawn, strict=True) for right in group]
    deviation = difference(subject, pairs, slack)
    count_compared(len(pairs))
    if deviation is None:
        return

    # What draws differently from seed to seed may have parted at a tie.
    varied = any(len({answer.ids for answer in group}) > 1 for group in drawn)
    testable(deviation.clear or not varied, _TIE_OR_NOT)
    shown = ", ".join(f"{name}={value:g}" for name, value in options.items())
    raise Violation(f"greedy against {shown}: {deviation.text}")


def _drawn(subject: Subject, prompt: str, seed: int) -> Answer:
    return generate(subject, prompt, 4, seed=seed, **EVEN)


@check(
    "sampling.steps",
    "Each token of a generation MUST be drawn separately: a seed is not one draw for all its steps",
    SPEAKING,
    Capability.SEED,
)
def steps_are_drawn_anew(subject: Subject) -> None:
    seed_options = seeds(subject, _SEEDS)
    answers = [
        generate(subject, _ASKED[0], 4, temperature=_EVENLY, **seed) for seed in seed_options
    ]
    near_by = subject.model.info.vocab_size // 50
    conclusive = _are_not_one([answer.ids for answer in answers], near_by, "ids")

    # One random number for all steps is one rank: ids hide that, and logits tell.
    telling = (Capability.GENERATE, Capability.CLASSIFY, Capability.LOGITS, Capability.TOKENIZING)
    if subject.declares(*telling):
        few = [generate(subject, _ASKED[0], 6, **_EVEN_BEST, **seed) for seed in seed_options]
        conclusive |= _are_not_one([_ranks(subject, answer) for answer in few], 1, "ranks")
    testable(conclusive, _NO_STEPS)


def _are_not_one(drawn: Sequence[Sequence[int]], near_by: int, what: str) -> bool:
    """Raise `Violation` when each seed's draws are all next to one another.

    False where too few seeds have draws enough to tell.
    """
    long = [draws for draws in drawn if len(draws) >= _STEPS]
    if len(long) < _STEPS:
        return False
    must(
        any(max(draws) - min(draws) > near_by for draws in long),
        f"with all tokens about equally likely, the draws of each seed hardly vary: {what} {long}",
    )
    return True


def _ranks(subject: Subject, answer: Answer) -> list[int]:
    """Return the rank of each of the answer's tokens, as far as its text gives its tokens."""
    encode, prompt = tokenizing(subject).encode, answer.prompt
    head, steps = encode(prompt), []
    for place, token in enumerate(answer.tokens):
        front = prompt + "".join(piece.text for piece in answer.tokens[:place])
        if encode(front) == [*head, *answer.ids[:place]]:
            steps.append((front, token.id))

    rows = logits(subject, [front for front, _ in steps])
    return [
        sum(value > row[drawn] for value in row) + row[:drawn].count(row[drawn])
        for row, (_, drawn) in zip(rows, steps, strict=True)
    ]
