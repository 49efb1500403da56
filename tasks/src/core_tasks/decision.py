"""The decision of a task about one text, computed from the labels' log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from core.kit.labels import choice_confidence, score_confidence, softmax
from core.records import RowResult, error_record, html_labels, number, numbers
from core.types import Token
from core_tasks.asking import Answer, logarithms
from core_tasks.calibration.logspace import checked_row
from core_tasks.calibration.value import Calibration


@dataclass(frozen=True, slots=True)
class Decision(RowResult):
    """Decision of a `core_tasks.Task` about one text.

    ``label`` is the best label, and ``labels`` contains it; in mode "many", ``label`` is None and
    ``labels`` are the labels that hold. ``probabilities`` sum to 1 (in
    mode "many", each is the probability of yes); ``level`` names the method that calibrated them,
    such as "content-free" or "content-free+temperature", "raw" for none, and "head" for a
    classifier head; ``logprobs`` are raw, joint and over the full
    vocabulary, with the words of a label summed. A model of label sentences has no ``logprobs``, no
    ``label_mass`` and no ``token``.

    ``confidence`` is defined as by decision servers, 0 for chance and 1 for certain; ``margin`` is
    the best probability minus the second best; ``label_mass`` the raw probability that any label
    follows, and ``token`` the model's next token, regardless of the labels.
    ``value`` and ``spread`` are the mean and the standard deviation of ordinal labels. ``accepted``
    is False if the probability is below the task's threshold. ``parts`` are the decisions yes or no
    for each label in mode "many"; a failed text has an ``error``.
    """

    label: str | None = None
    labels: tuple[str, ...] = ()
    probabilities: dict[str, float] | None = None
    logprobs: dict[str, float] | None = None
    level: str = "raw"
    confidence: float | None = None
    margin: float | None = None
    label_mass: float | None = None
    token: Token | None = None
    value: float | None = None
    spread: float | None = None
    accepted: bool = True
    parts: dict[str, Decision] = field(default_factory=dict)
    error: Exception | None = None

    @property
    def scores(self) -> dict[str, float] | None:
        """The labels' ``logprobs``; without them, the logarithms of ``probabilities``."""
        if self.logprobs is not None or self.probabilities is None:
            return self.logprobs
        return logarithms(self.probabilities)

    def to_dict(self) -> dict[str, object]:
        """Return the decision for JSON."""
        return {
            "label": self.label,
            "labels": [*self.labels],
            "probabilities": numbers(self.probabilities),
            "logprobs": numbers(self.logprobs),
            "level": self.level,
            "confidence": number(self.confidence),
            "margin": number(self.margin),
            "label_mass": number(self.label_mass),
            "token": self.token.to_dict() if self.token else None,
            "value": number(self.value),
            "spread": number(self.spread),
            "accepted": self.accepted,
            "parts": {label: part.to_dict() for label, part in self.parts.items()},
            "error": error_record(self.error),
        }

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks: the labels, most probable first."""
        return html_labels(self.error, self.probabilities, f"probability ({self.level})")


def decided(
    answer: Answer,
    calibration: Calibration | None,
    *,
    question: str = "",
    threshold: float | None = None,
    numeric: bool = False,
) -> Decision:
    """Return the decision between labels. Raises `CalibrationError` for NaN, or other labels."""
    row = answer.scores
    values = checked_row([*row.values()], len(row), "The model's answer")
    if calibration is not None:
        values = [*calibration.apply(row, question).values()]
    shares, labels = softmax(values), [*row]

    best = values.index(max(values))
    second = max(shares[:best] + shares[best + 1 :])
    levels = sorted(zip(map(float, labels), shares, strict=True)) if numeric else []
    value, spread = _moments(levels)
    confident = score_confidence([share for _, share in levels]) if numeric else None
    return Decision(
        label=labels[best],
        labels=(labels[best],),
        probabilities=dict(zip(labels, shares, strict=True)),
        logprobs=answer.logprobs,
        level="raw" if calibration is None else calibration.method,
        confidence=choice_confidence(shares) if confident is None else confident,
        margin=shares[best] - second,
        label_mass=answer.label_mass,
        token=answer.token,
        value=value,
        spread=spread,
        accepted=threshold is None or shares[best] >= threshold,
    )


def gathered(parts: Mapping[str, Decision], yes: str, threshold: float) -> Decision:
    """Return the decision in mode "many" from the labels' own decisions.

    The first error of a label is the error of the text.
    """
    failed = next((part.error for part in parts.values() if part.error is not None), None)
    if failed is not None:
        return Decision(level=next(iter(parts.values())).level, error=failed)
    shares = {label: (part.probabilities or {})[yes] for label, part in parts.items()}
    masses = [part.label_mass for part in parts.values() if part.label_mass is not None]
    return Decision(
        labels=tuple(label for label, share in shares.items() if share >= threshold),
        probabilities=shares,
        level=next(iter(parts.values())).level,
        label_mass=min(masses, default=None),
        parts=dict(parts),
    )


def _moments(levels: list[tuple[float, float]]) -> tuple[float | None, float | None]:
    """Return the mean and the standard deviation; None without levels."""
    if not levels:
        return None, None
    mean = math.fsum(level * share for level, share in levels)
    return mean, math.sqrt(math.fsum(share * (level - mean) ** 2 for level, share in levels))
