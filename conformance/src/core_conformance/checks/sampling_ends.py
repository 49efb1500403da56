"""Options of sampling at the ends of their ranges, and draws without a seed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, cast

from core.errors import UnsupportedOptionError
from core.extensions import TokenPrompts
from core.protocols import Capability, TextModel
from core_conformance.checking import ask, budget
from core_conformance.checking.ask import (
    EVEN,
    SPEAKING,
    classify,
    is_token,
    logits,
    token,
    tokenizing,
)
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import same_draws
from core_conformance.checking.draws.operations import draw, drawing
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import BATCHES, run
from core_conformance.checking.ways.table import ways

_PROMPTS = ask.PLAIN[:2]
_EVENLY = 1e4  # a temperature at which all tokens are about as likely
_SEEDS = (3, 99, 12_345, 7_654_321, 2**31 - 1)
_FOLDS = {
    "cut to 32 bits": [(seed, 2**32 + seed) for seed in _SEEDS],
    "without their sign": [(seed, 2**63 + seed) for seed in _SEEDS],
    "rounded to a float": [(2**63 - seed, 2**63 - seed - 1) for seed in range(1, 10, 2)],
}
_HUGE, _TINY = 1.7976931348623157e308, 5e-324  # the largest and the smallest float
_DRAWS = 128
_COOL, _COLD, _TYPICAL = 0.02, (0.005, 1e-3, 1e-5), 0.2  # temperatures
_CHANCE = 40  # temperatures: a token so far below the best one is never drawn
_COLD_PROMPTS = ask.PLAIN[:4]
_PENALTIES = (1e30, _HUGE, 1e-30, _TINY)


@check(
    "sampling.seed-bits",
    "Seeds that differ in any of their 64 bits MUST be different seeds",
    (*SPEAKING, Capability.CLASSIFY, Capability.BATCH_GENERATE),
    Capability.SEED,
    broad=True,
)
def all_bits_of_a_seed_count(subject: Subject) -> None:
    cases = {f"{name}, {fold}": (name, fold) for fold in _FOLDS for name in drawing(subject)}
    for case in budget.within(subject, cases, lambda case: 2.0 * len(_SEEDS), "seeds"):
        name, fold = cases[case]
        options: dict[str, Any] = {"temperature": _EVENLY}
        drawn = [
            [draw(subject, name, _PROMPTS[:1], seed=seed, **options)[0].ids for seed in pair]
            for pair in _FOLDS[fold]
        ]
        must(
            any(one != other for one, other in drawn),
            f"{name} with {options} draws the same with both seeds of {_FOLDS[fold]}, as if they "
            f"were {fold}: {drawn}",
        )


@check(
    "sampling.cold-filters",
    "A temperature near 0 MUST draw the likeliest of the tokens that the filters leave: it is not "
    "0, at which no filter applies",
    (*SPEAKING, Capability.CLASSIFY, Capability.BATCH_GENERATE),
    Capability.CLASSIFY,
    Capability.LOGITS,
    broad=True,
)
def cold_draws_are_filtered(subject: Subject) -> None:
    rows = logits(subject, _COLD_PROMPTS)
    for name in drawing(subject):
        try:
            drawn = {
                temperature: draw(
                    subject, name, _COLD_PROMPTS, temperature=temperature, typical_p=_TYPICAL
                )
                for temperature in (_COOL, *_COLD)
            }
        except UnsupportedOptionError as error:
            refusable = ("temperature", "typical_p", "seed")
            must(error.option in refusable, f"{name} with typical_p raised {error!r}")
            continue
        for temperature in _COLD:
            pairs = zip(_COLD_PROMPTS, rows, drawn[_COOL], drawn[temperature], strict=True)
            for prompt, row, one, other in pairs:
                if not one.ids or not other.ids:
                    continue
                apart = abs(row[one.ids[0]] - row[other.ids[0]])
                must(
                    apart <= _CHANCE * _COOL + 2 * subject.tolerance,
                    f"{name} with typical_p={_TYPICAL} after {prompt!r} drew {one.ids[0]} at the "
                    f"temperature {_COOL}, and at {temperature:g} {other.ids[0]}, whose logit is "
                    f"{apart:.3g} away",
                )


@check(
    "sampling.ends-off",
    "A filter at the end of its range that drops nothing, or wider than the vocabulary, MUST "
    "change nothing",
    (*SPEAKING, Capability.CLASSIFY, Capability.BATCH_GENERATE),
    Capability.SEED,
    broad=True,
)
def filters_that_drop_nothing_change_nothing(subject: Subject) -> None:
    size = subject.model.info.vocab_size
    off: list[dict[str, Any]] = [
        {"top_p": 1.0},  # no backend refuses the default
        {"typical_p": 1.0},
        *({"top_k": count} for count in (2**32 + 1, size + 1, 2**31, size)),
        {"min_p": _TINY},
    ]

    cases = {f"{name} with {choice}": (name, choice) for choice in off for name in drawing(subject)}
    warm = {"temperature": EVEN["temperature"], "seed": 5}

    for case in budget.within(subject, cases, lambda case: 4.0, "filters"):
        name, option = cases[case]
        free = draw(subject, name, _PROMPTS, 2, **warm)
        try:
            filtered = draw(subject, name, _PROMPTS, 2, **warm, **option)
        except UnsupportedOptionError as error:
            if error.option not in option:
                raise
            continue

        same_draws(
            subject, list(zip(free, filtered, strict=True)), f"{name} with {warm}, and {option}"
        )


@check(
    "sampling.penalty-ends",
    "A repeat_penalty at either end of its range MUST still take the best of the penalised logits",
    Capability.CLASSIFY,
    Capability.LOGITS,
    Capability.TOKENIZING,
    broad=True,
)
def penalties_at_their_ends(subject: Subject) -> None:
    prompts = (*ask.REPEATING, ask.LONG)
    rows = logits(subject, prompts)
    for penalty in _PENALTIES:
        for options in ({}, {"temperature": 1e-6}):
            results = classify(subject, prompts, repeat_penalty=penalty, **options)
            for prompt, row, result in zip(prompts, rows, results, strict=True):
                seen = set(tokenizing(subject).encode(prompt))
                allowed = _best(row, seen, penalty, 2 * subject.tolerance + 1e-3)
                must(
                    is_token(result.token, len(row)) and token(result).id in allowed,
                    f"repeat_penalty={penalty:g} and {options} on {prompt!r} gave "
                    f"{result.token!r}, whose logit is {row[token(result).id]:.4g}: with it the "
                    f"best tokens are {sorted(allowed)[:8]}",
                )


@check(
    "sampling.penalty-negative",
    "repeat_penalty MUST make a negative logit less likely that was seen, at any temperature: "
    "after a large one none of these is drawn",
    Capability.CLASSIFY,
    Capability.LOGITS,
    Capability.TOKENIZING,
)
def penalties_of_negative_logits(subject: Subject) -> None:
    [row] = logits(subject, [ask.LONG])
    seen = set(tokenizing(subject).encode(ask.LONG))
    gone = {token for token in seen if row[token] < -1 - 2 * subject.tolerance}
    drawn = classify(subject, [ask.LONG] * _DRAWS, repeat_penalty=1e4, temperature=100.0)
    wrong = {token(result).id for result in drawn} & gone
    logits_of = {token: row[token] for token in sorted(wrong)}
    must(
        not wrong,
        f"repeat_penalty=1e4 at temperature 100 after {ask.LONG!r:.60} drew tokens that stand in "
        f"it, with the logits {logits_of}: a negative logit is multiplied by the penalty",
    )


def _best(
    row: Sequence[float], seen: Collection[int], penalty: float, slack: float
) -> Collection[int]:
    """Return the tokens that may be the best after an enormous or a minute penalty.

    Enormous: of a positive logit that was seen nothing is left, and a negative one is impossible.
    Minute: a positive one is beyond all others, and of a negative one nothing is left.
    """
    positive = {token for token in seen if row[token] > slack}
    unsure = {token for token in seen if abs(row[token]) <= slack}
    if penalty < 1 and positive:
        return positive | unsure

    nothing = positive if penalty > 1 else set(seen)  # of their logits nothing is left
    others = {token: value for token, value in enumerate(row) if token not in seen}
    best = max([*others.values(), *(0.0 for _ in nothing)])
    left = {token for token, value in others.items() if value >= best - slack}
    return left | unsure | (nothing if best <= slack else set())


_TOKENS, _ROWS = 8, 4
_ASKED = ask.PLAIN[:3]
_SILENT = "no prompt tried is continued by any token: use a model that generates text"

Drawn = list[tuple[int, ...]]


@check(
    "sampling.free-loads",
    "Draws without a seed MUST NOT be the same in every load of a model",
    (*ask.SPEAKING, *BATCHES),
)
def loads_draw_for_themselves(subject: Subject) -> None:
    for way in ways(subject, *ask.SPEAKING, *BATCHES):
        loads: list[Drawn] = []
        for _ in range(2):
            with subject.loaded() as model:
                loads.append(
                    [
                        row.answer.ids
                        for prompt in _ASKED
                        for row in run(subject, way, model, [prompt], _TOKENS, **EVEN)
                    ]
                )
        testable(any(loads[0]), _SILENT)
        must(
            loads[0] != loads[1],
            f"{way.name} of {len(_ASKED)} prompts without a seed drew {loads[0]} in two loads",
        )


@check(
    "batch.free-rows",
    "Rows of equal prompts without a seed MUST each be drawn independently, and so MUST the "
    "samples of a prompt of ids",
    (*BATCHES, Capability.TOKEN_PROMPTS),
)
def rows_draw_for_themselves(subject: Subject) -> None:
    for name, sampled in _drawing(subject):
        drawn = [answer for prompt in _ASKED for answer in sampled(subject.model, prompt)]
        groups = [set(drawn[start : start + _ROWS]) for start in range(0, len(drawn), _ROWS)]
        testable(any(any(group) for group in groups), _SILENT)
        must(
            any(len(group) > 1 for group in groups),
            f"{name} drew {_ROWS} times the same after each of {len(_ASKED)} prompts: {groups}",
        )


def _drawing(subject: Subject) -> Iterator[tuple[str, Callable[[TextModel, str], Drawn]]]:
    for way in ways(subject, *BATCHES):

        def rows(model: TextModel, prompt: str, way: Any = way) -> Drawn:
            rows = run(subject, way, model, [prompt] * _ROWS, _TOKENS, **EVEN)
            return [row.answer.ids for row in rows]

        yield way.name, rows
    if subject.declares(Capability.TOKEN_PROMPTS, Capability.TOKENIZING):
        encode = tokenizing(subject).encode

        def samples(model: TextModel, prompt: str) -> Drawn:
            options: dict[str, Any] = {"max_tokens": _TOKENS, "num_samples": _ROWS, **EVEN}
            ids = encode(prompt)
            sequences = cast("TokenPrompts", model).generate_tokens([ids], **options)
            return [sequence.ids[len(ids) :] for sequence in sequences]

        yield "generate_tokens", samples
