"""Questions of a decision request, in any API format, and their answers.

``confidence`` is one formula for each kind, that of jevcompat (its SPEC.md 4.5, ``validate.py``;
kime-core's spec/04 has the same). Other servers compute other things under this name, so a
threshold that was tuned with one of them does not hold here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a choice. The text "true" and the truth value are two options."""

    value: str | bool
    description: str = ""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a score; its value is its index among the levels, from 0."""

    label: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A yes-or-no question. ``true`` and ``false`` describe both; one of the three texts is set."""

    instructions: str = ""
    true: str = ""
    false: str = ""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A question with several options."""

    instructions: str
    options: tuple[Option, ...]
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """A question for a rating on ordinal levels."""

    instructions: str
    levels: tuple[Level, ...]
    name: str | None = None


Question: TypeAlias = Predicate | Choice | Score


How = Literal["labels", "letters"]
MAX_LETTERS = 26


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """Questions about one state, in the order of their answers.

    ``reading`` selects the labels: the options and levels themselves, or letters that represent
    them in the prompt, whose order and number then matter.
    """

    wire: Literal["decisions", "systemone"]
    model: str
    state: str
    questions: tuple[Question, ...]
    reading: How = "labels"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Label scores of an answer, in the question's order (true, false for predicates).

    ``level`` is the calibration level of the probabilities, "raw" without a calibration;
    ``reading`` the kind of labels. A value that the backend does not return is None.
    """

    label_mass: float | None = None
    margin: float | None = None
    logprobs: tuple[float, ...] | None = None
    level: str = "raw"
    reading: How = "labels"


@dataclass(frozen=True, slots=True)
class PredicateAnswer:
    """The probability that the predicate holds."""

    probability: float
    evidence: Evidence = Evidence()


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The likeliest option; ``probabilities`` has one for each option, in order."""

    choice: str | bool
    probabilities: tuple[float, ...]
    confidence: float
    evidence: Evidence = Evidence()


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """The expected level; ``probabilities`` has one for each level, in order."""

    score: float
    probabilities: tuple[float, ...]
    confidence: float
    evidence: Evidence = Evidence()


Answer: TypeAlias = PredicateAnswer | ChoiceAnswer | ScoreAnswer


def expected_score(probabilities: Sequence[float]) -> float:
    """Return ``sum(i * p_i)``, limited to the last level despite rounding."""
    expected = math.fsum(i * p for i, p in enumerate(probabilities))
    return min(expected, float(len(probabilities) - 1))
