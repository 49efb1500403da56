"""batch_generate by itself: what can be told without generate to hold it against."""

from __future__ import annotations

from core.capability import Capability
from core.types import BatchResult
from core_conformance import prompts
from core_conformance.answers import Answer, answer, batch
from core_conformance.model import must
from core_conformance.preconditions import goes_on
from core_conformance.registry import check
from core_conformance.relations import same_answers
from core_conformance.subject import Subject

_ASKED = prompts.PLAIN[:3]
_LENGTH = 6


@check(
    "batch.repeatable",
    "The same greedy batch MUST give the same rows again, whatever was asked in between",
    Capability.BATCH_GENERATE,
)
def batches_repeat(subject: Subject) -> None:
    first = _rows(batch(subject, _ASKED, 4))
    batch(subject, _ASKED[:1], 2, temperature=50.0)
    again = _rows(batch(subject, _ASKED, 4))
    same_answers(subject, list(zip(first, again, strict=True)), "the same batch, twice")


@check(
    "batch.stops",
    "A row MUST end in front of a stop string or a stop token, and no other row with it",
    Capability.BATCH_GENERATE,
)
def rows_stop(subject: Subject) -> None:
    free = _rows(batch(subject, _ASKED, _LENGTH))
    goes_on(subject, [row.tokens for row in free], Capability.BATCH_GENERATE)
    longest = max(free, key=lambda row: (len(row.text), len(row.ids)))
    stop, stop_id = longest.text[len(longest.text) // 2 :][:2], longest.ids[len(longest.ids) // 2]
    if stop:
        for row, found in zip(free, batch(subject, _ASKED, _LENGTH, stop=stop), strict=True):
            expected = row.text.partition(stop)[0]
            _ends(row, answer(found), f"stop={stop!r}", expected, stop in row.text)
    for row, found in zip(
        free, batch(subject, _ASKED, _LENGTH, stop_tokens=[stop_id]), strict=True
    ):
        comes = stop_id in row.ids
        ids = row.ids[: row.ids.index(stop_id)] if comes else row.ids
        _ends(row, answer(found), f"stop_tokens=[{stop_id}]", ids, comes)


def _ends(
    free: Answer, found: Answer, option: str, expected: str | tuple[int, ...], comes: bool
) -> None:
    """One row. Where other tokens came for a reason of their own, nothing can be told."""
    if found.ids != free.ids[: len(found.ids)]:
        return
    seen = found.text if isinstance(expected, str) else found.ids
    reason = "stop" if comes else free.finish_reason
    must(
        (seen, found.finish_reason) == (expected, reason),
        f"batch_generate with {option} left {seen!r} ({found.finish_reason}) of {free.text!r}; "
        f"{expected!r} and finish_reason {reason!r} were expected",
    )


def _rows(results: list[BatchResult]) -> list[Answer]:
    return [answer(row, prompt) for prompt, row in zip(_ASKED, results, strict=True)]
