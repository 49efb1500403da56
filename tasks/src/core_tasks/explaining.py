"""Which part of a text moves its label: the label's probability without each part."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from core import validate
from core.errors import LabelError, TaskError
from core.records import error_record, number
from core_tasks.decision import Decision

Unit = Literal["sentences", "lines", "words"]
UNITS: tuple[Unit, ...] = ("sentences", "lines", "words")

_ENDS = {
    # Ends of sentences, with quotes and brackets after them; no space follows those of CJK.
    "sentences": re.compile(
        r"[.!?\u2026]+[\"'\u2019\u201d\u00bb)\]]*(?=\s)"
        r"|[\u3002\uff01\uff1f]+[\u300d\u300f\u201d\uff09]*"
        r"|\n(?=\s*\n)"
    ),
    "lines": re.compile(r"\n"),
    "words": re.compile(r"\S(?=\s)"),
}
MOST = 1000
"""Parts of a text that is explained: each takes a copy of the text without it."""
_LEAST = 1e-12  # a probability of 0 or 1 would have infinite log-odds


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a text, ``text[start:end]`` without white space around it, and its effect.

    ``probability`` is that of the explained label without the part, and ``label`` the best label
    then. ``change`` is how much the part raises the label's probability, ``effect`` its log-odds.
    These are None if the rest has an ``error``, such as a rest without text.
    """

    text: str
    start: int
    end: int
    label: str | None = None
    probability: float | None = None
    change: float | None = None
    effect: float | None = None
    error: Exception | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the part for JSON."""
        numbers = {
            name: number(getattr(self, name)) for name in ("probability", "change", "effect")
        }
        return asdict(self) | numbers | {"error": error_record(self.error)}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The decision about a text, and its parts in order; ``label`` is the explained label."""

    label: str
    probability: float
    decision: Decision
    parts: tuple[Part, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the explanation for JSON."""
        return {
            "label": self.label,
            "probability": number(self.probability),
            "level": self.decision.level,
            "probabilities": self.decision.to_dict()["probabilities"],
            "parts": [part.to_dict() for part in self.parts],
        }


def explain(
    classify: Callable[[Sequence[str]], Sequence[Decision]],
    text: str,
    *,
    by: Unit = "sentences",
    label: str | None = None,
) -> Explanation:
    """Return the effect of each part of a text on a label, by default the best one.

    The text, and the text without each part, are classified in one call; nothing is estimated or
    drawn. ``classify`` returns a decision for each text: ``partial(task.classify, model)``, or
    that of a head. Raises the error of the text itself, `TaskError` for a text of one part or of
    more than `MOST`, and `LabelError` for an unknown label.
    """
    spans = [*parts_of(text, validate.one_of("by", by, UNITS))]
    if len(spans) < 2:
        finer = {"lines": "sentences", "sentences": "words"}.get(by)
        raise TaskError(
            f"The text has fewer than two {by}, and without its only one nothing is left."
            + (f" Explain it by {finer}." if finer else "")
        )
    if len(spans) > MOST:
        coarser = {"words": "sentences", "sentences": "lines"}.get(by, "")
        raise TaskError(
            f"The text has {len(spans)} {by}, and at most {MOST} are explained. "
            + (f"Explain it by {coarser}, or" if coarser else "Explain")
            + " a part of it."
        )
    whole, *rests = classify([text, *(_without(text, *span) for span in spans)])
    if whole.error is not None:
        raise whole.error
    probabilities = whole.probabilities or {}
    explained = label or whole.label or max(probabilities, key=probabilities.__getitem__)
    if explained not in probabilities:
        known = ", ".join(map(repr, probabilities))
        raise LabelError(f"{explained!r:.40} is not a label of the task. The labels are {known}.")
    share = probabilities[explained]
    pairs = zip(spans, rests, strict=True)
    parts = tuple(_part(text, span, rest, explained, share) for span, rest in pairs)
    return Explanation(explained, share, whole, parts)


def parts_of(text: str, by: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each part that is not blank."""
    start = 0
    for end in [*(match.end() for match in _ENDS[by].finditer(text)), len(text)]:
        if part := text[start:end].strip():
            first = text.index(part[0], start)
            yield first, first + len(part)
        start = end


def _without(text: str, start: int, end: int) -> str:
    """Return the text without a part, and without the white space after it."""
    rest = text[end:].lstrip()
    return text[:start] + rest if rest else text[:start].rstrip()


def _part(text: str, span: tuple[int, int], rest: Decision, label: str, share: float) -> Part:
    start, end = span
    if rest.error is not None or rest.probabilities is None:
        return Part(text[start:end], start, end, error=rest.error)
    without = rest.probabilities[label]
    effect = _log_odds(share) - _log_odds(without)
    return Part(text[start:end], start, end, rest.label, without, share - without, effect)


def _log_odds(share: float) -> float:
    share = min(max(share, _LEAST), 1 - _LEAST)
    return math.log(share) - math.log1p(-share)
