"""Outputs of a model after a few prompts, compared with those at another time.

In all detail that the backend gives: by `classify`, or by greedy answers if that is not declared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from core.protocols import TextModel
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.ask import PLAIN, Answer, sampled
from core_conformance.checking.calls import greedy, raised
from core_conformance.checking.check import must, testable
from core_conformance.checking.compare import same_rows
from core_conformance.checking.recall import alone, same_results, telling
from core_conformance.checking.subject import Subject

_PROMPTS = PLAIN[:4]
_TOKENS = 4
_TURNS = 8  # of a model at a tie, in which it has said both
BLANK = (
    "all logits, or log-probabilities, that the model gave after the prompts tried are equal: use "
    "a model with weights"
)

Said = Sequence[ClassifyResult] | Sequence[Answer]


def says(subject: Subject, model: TextModel, prompts: Sequence[str] = _PROMPTS) -> Said:
    """Return a model's outputs after prompts, in all detail that the backend gives."""
    if subject.classifies:
        return alone(subject, model, prompts, **telling(subject))
    if any(map(subject.declares, ask.SPEAKING)):
        return [Answer(tuple(greedy(subject, model, prompt, _TOKENS)), None) for prompt in prompts]
    options = {"max_tokens": _TOKENS, **ask.evidence(subject)}
    return [ask.answer(row) for row in model.batch_generate(prompts, **options)]


def must_be(subject: Subject, wanted: Said, say: Callable[[], Said], what: str) -> None:
    """Raise `Violation` unless the outputs are as wanted, as far as `compare` requires.

    Greedy answers show no margins here, and at a tie a sound model gives one or the other: those
    that differ are generated again, and half of them may differ.
    """
    if not isinstance(wanted[0], Answer):
        rows, others = (cast("list[ClassifyResult]", outputs) for outputs in (wanted, say()))
        same_results(subject, _PROMPTS[: len(rows)], rows, others, what)
        return

    answers = cast("Sequence[Answer]", wanted)
    errors: dict[int, Exception] = {}
    differing = list(range(len(answers)))
    for _ in range(_TURNS):
        latest = cast("Sequence[Answer]", say())
        again = {
            row: raised(partial(same_rows, subject, [(answers[row], latest[row])], what))
            for row in differing
        }
        errors = {row: error for row, error in again.items() if error is not None}
        differing = [*errors]
        if 2 * len(errors) <= len(answers):
            return
    raise next(iter(errors.values()))


def must_differ(subject: Subject, one: Said, other: Said, what: str) -> None:
    numbers, others = _numbers(one), _numbers(other)
    spread = max(numbers) - min(numbers)
    least = 2 * min(subject.tolerance, spread / 100)  # a tolerance is small against the spread
    apart = len(numbers) != len(others) or any(
        abs(a - b) > least for a, b in zip(numbers, others, strict=True)
    )
    same = not apart and [_ids(output) for output in one] == [_ids(output) for output in other]
    testable(not (same and len(numbers) > 1 and spread == 0), BLANK)
    must(not same, f"{what}, after {len(one)} prompts and within {least:g}")


def has_weights(subject: Subject, model: TextModel) -> bool:
    """Return False if the model visibly gives every token the same logit."""
    numbers = _numbers(says(subject, model))
    return len(numbers) < 2 or max(numbers) > min(numbers)


def _numbers(outputs: Said) -> list[float]:
    """Return the logits, or log-probabilities, of all outputs."""
    numbers: list[float] = []
    for output in outputs:
        if isinstance(output, ClassifyResult):
            numbers += output.logits or [ask.token(output).logprob or 0.0]
        else:
            numbers += [token.logprob or 0.0 for token in output.tokens]
    return numbers


def _ids(output: ClassifyResult | Answer) -> tuple[int, ...]:
    return sampled(output).ids if isinstance(output, ClassifyResult) else output.ids


def unless_raised(run: Callable[[], Said], what: str) -> Said:
    results: list[Said] = []
    error = raised(lambda: results.append(run()))
    must(error is None, f"{what} raised {error!r}")
    return results[0]
