"""What a decision request asks, whichever wire it came by, and the answers to it.

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
    """One answer to a choice. The text "true" and the truth value are two options."""

    value: str | bool
    description: str = ""


@dataclass(frozen=True, slots=True)
class Level:
    """One step of a score, which is its place among the levels, from 0."""

    label: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Predicate:
    """Is this so? ``true`` and ``false`` describe when; one of the three texts is there."""

    instructions: str = ""
    true: str = ""
    false: str = ""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which of these?"""

    instructions: str
    options: tuple[Option, ...]
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """How much, on these levels?"""

    instructions: str
    levels: tuple[Level, ...]
    name: str | None = None


Question: TypeAlias = Predicate | Choice | Score


How = Literal["labels", "letters"]
MAX_LETTERS = 26


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """Questions about one state, in the order of their answers.

    ``reading`` says what is read: the options and levels themselves, or letters that stand for
    them in the prompt, where their order and number matter.
    """

    wire: Literal["decisions", "systemone"]
    model: str
    state: str
    questions: tuple[Question, ...]
    reading: How = "labels"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the labels of a question came to: in its order, a predicate's as true, false.

    ``level`` says how finished the probabilities are: "raw" as the model has them, or what a
    calibration made of them; ``reading`` what was read. What a backend does not tell is None.
    """

    label_mass: float | None = None
    margin: float | None = None
    logprobs: tuple[float, ...] | None = None
    level: str = "raw"
    reading: How = "labels"


@dataclass(frozen=True, slots=True)
class PredicateAnswer:
    """How probable it is that the predicate holds."""

    probability: float
    evidence: Evidence = Evidence()


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The likeliest option; ``probabilities`` are those of the options, in their order."""

    choice: str | bool
    probabilities: tuple[float, ...]
    confidence: float
    evidence: Evidence = Evidence()


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """The expected level; ``probabilities`` are those of the levels, in their order."""

    score: float
    probabilities: tuple[float, ...]
    confidence: float
    evidence: Evidence = Evidence()


Answer: TypeAlias = PredicateAnswer | ChoiceAnswer | ScoreAnswer


def choice_confidence(probabilities: Sequence[float]) -> float:
    """How far the best option is above chance: ``(max p - 1/n) / (1 - 1/n)``, for n >= 2."""
    chance = 1 / len(probabilities)
    return _within_one((max(probabilities) - chance) / (1 - chance))


def score_confidence(probabilities: Sequence[float]) -> float:
    """How near the levels are to the likeliest: ``max(0, 1 - spread / spread of chance)``.

    The spread is ``sum(p_i * |i - mode|)``, that of chance ``mean(|i - (n - 1) / 2|)``, for n >= 2.
    """
    levels = range(len(probabilities))
    mode = max(levels, key=lambda level: probabilities[level])
    spread = math.fsum(p * abs(i - mode) for i, p in enumerate(probabilities))
    middle = (len(probabilities) - 1) / 2
    of_chance = math.fsum(abs(i - middle) for i in levels) / len(probabilities)
    return _within_one(1 - spread / of_chance)


def expected_score(probabilities: Sequence[float]) -> float:
    """``sum(i * p_i)``, which no rounding takes beyond the last level."""
    expected = math.fsum(i * p for i, p in enumerate(probabilities))
    return min(expected, float(len(probabilities) - 1))


def _within_one(value: float) -> float:
    return min(1.0, max(0.0, value))
