"""Drawing: greedy, seeds, temperature and the filters, told by what comes out."""

from __future__ import annotations

from core.capability import Capability
from core_conformance import prompts
from core_conformance.answers import EVEN, Answer, generate, seeds
from core_conformance.model import must
from core_conformance.registry import check
from core_conformance.relations import same_answers, same_draws
from core_conformance.subject import Subject

_ASKED = prompts.PLAIN[:3]
_HOT = 50.0  # the logits of any model but one that allows a single token are near even here


@check(
    "sampling.greedy",
    "Greedy generation MUST be repeatable, whatever was asked in between",
    Capability.GENERATE,
)
def greedy_is_repeatable(subject: Subject) -> None:
    first = [generate(subject, prompt, 5) for prompt in _ASKED]
    generate(subject, prompts.SHORT, 2, temperature=_HOT)
    again = [generate(subject, prompt, 5, temperature=0.0) for prompt in _ASKED]
    same_answers(subject, list(zip(first, again, strict=True)), "greedy, twice")


@check(
    "sampling.greedy-ignores-seed",
    "At temperature 0 a seed MUST change nothing",
    Capability.GENERATE,
    Capability.SEED,
)
def greedy_ignores_seeds(subject: Subject) -> None:
    pairs = [
        (generate(subject, prompt, 4), generate(subject, prompt, 4, seed=seed))
        for prompt, seed in zip(_ASKED, (0, 1, 2), strict=True)
    ]
    same_answers(subject, pairs, "greedy without and with a seed")


@check(
    "sampling.cold",
    "A temperature near 0 MUST give what greedy gives",
    Capability.GENERATE,
)
def cold_is_greedy(subject: Subject) -> None:
    # A best token that is ahead by 0.02 loses at this temperature once in 10**8 draws.
    options = {"temperature": 0.001} | seeds(subject, 1)[0]
    pairs = _against_greedy(subject, options)
    same_answers(subject, pairs, "greedy against temperature=0.001", slack=0.02, always=1)


@check(
    "sampling.seed",
    "The same seed MUST give the same tokens, 0 and the largest seed too, whatever was drawn since",
    Capability.GENERATE,
    Capability.SEED,
)
def seeds_repeat(subject: Subject) -> None:
    asked = [(prompt, seed) for prompt in _ASKED[:2] for seed in (0, 7, 2**64 - 1)]
    first = [_drawn(subject, *each) for each in asked]
    generate(subject, prompts.SHORT, 2, temperature=_HOT)
    again = [_drawn(subject, *each) for each in asked]
    same_draws(subject, list(zip(first, again, strict=True)), "the same seeds, twice")


@check(
    "sampling.seeds-differ",
    "Different seeds MUST lead to different draws",
    Capability.GENERATE,
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
    Capability.GENERATE,
)
def top_k_one_is_greedy(subject: Subject) -> None:
    _is_greedy(subject, top_k=1)


@check(
    "sampling.top-p-tiny",
    "A top_p near 0 MUST give what greedy gives, at any temperature",
    Capability.GENERATE,
)
def tiny_top_p_is_greedy(subject: Subject) -> None:
    _is_greedy(subject, top_p=1e-6)


@check(
    "sampling.min-p-one",
    "min_p=1 MUST give what greedy gives, at any temperature",
    Capability.GENERATE,
)
def min_p_one_is_greedy(subject: Subject) -> None:
    _is_greedy(subject, min_p=1.0)


def _is_greedy(subject: Subject, **filters: float) -> None:
    options = filters | {"temperature": 2.0} | seeds(subject, 1)[0]
    pairs = _against_greedy(subject, options)
    shown = ", ".join(f"{name}={value:g}" for name, value in filters.items())
    same_answers(subject, pairs, f"greedy against {shown} at temperature 2")


def _against_greedy(subject: Subject, options: dict[str, float]) -> list[tuple[Answer, Answer]]:
    return [
        (generate(subject, prompt, 4), generate(subject, prompt, 4, **options)) for prompt in _ASKED
    ]


def _drawn(subject: Subject, prompt: str, seed: int) -> Answer:
    return generate(subject, prompt, 4, seed=seed, **EVEN)
