"""Checks of prompts that come several times in one call: the same results, but draws of their own.

Backends may compute equal prompts once.
"""

from __future__ import annotations

from typing import Any, cast

from core.extensions import ClassifyStreaming
from core.protocols import Capability
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.ask import classify, token
from core_conformance.checking.check import check, must, well_formed
from core_conformance.checking.compare import apart
from core_conformance.checking.recall import alone, relatives, same_results, telling, told
from core_conformance.checking.subject import Subject

_REPEATED = (0, 1, 0, 3, 2, 0, 3, 1)
_HOTTEST: dict[str, Any] = {"temperature": 1e4}  # any token is about as likely as any other
_DRAWS = 16


@check(
    "classify.equal-prompts",
    "Prompts that come several times MUST each get what one alone gets, and no other prompt's",
    Capability.CLASSIFY,
)
def equal_prompts_are_equal(subject: Subject) -> None:
    options = telling(subject)
    if subject.declares(Capability.LABELS):
        options["labels"] = ask.SEVERAL_WORDS
    prompts = relatives(subject, "Again")
    given = [prompts[place] for place in _REPEATED]
    answers = {"classify": classify(subject, given, **options)}
    if subject.declares(Capability.CLASSIFY_STREAMING):
        answers["classify_iter"] = _streamed(subject, given, options)
    wanted = alone(subject, subject.model, prompts[: 1 + max(_REPEATED)], **options)
    expected = [wanted[place] for place in _REPEATED]
    for name, results in answers.items():
        same_results(subject, given, expected, results, f"alone, and several times in one {name}")
    apart(list(map(told, wanted)))


@check(
    "classify.free-draws",
    "Without a seed, a prompt that comes several times MUST be drawn for each time",
    Capability.CLASSIFY,
    broad=True,  # other draws than asked for may be the same ones too, by chance
)
def equal_prompts_draw_freely(subject: Subject) -> None:
    given = [ask.PLAIN[0]] * _DRAWS
    drawn = {token(result).id for result in classify(subject, given, **_HOTTEST)}
    must(
        len(drawn) > 1,
        f"{_DRAWS} times {given[0]!r} in one call with {_HOTTEST} and no seed all drew the token "
        f"{drawn}: one draw may be reused for duplicate prompts only with a seed",
    )


def _streamed(subject: Subject, given: list[str], options: dict[str, Any]) -> list[ClassifyResult]:
    results = list(cast("ClassifyStreaming", subject.model).classify_iter(iter(given), **options))
    errors = [result.error for result in results if result.error is not None]
    well_formed(
        len(results) == len(given) and not errors,
        f"classify_iter() of {len(given)} prompts gave {len(results)} results, errors: {errors}",
    )
    return results
