"""How a question is read: its prompt, its labels, and the answer that their probabilities make.

The question comes first and the state after it, so that what many states share is computed once.
The labels continue the prompt, which ends in the words that lead to them, right behind the state:
no letters stand for them, and nothing depends on the order of the options (descriptions are listed
in an order of their own). One prompt for each question and state, so no question hears of another.

The wording was chosen by figures, with plain sentences and no calibration. Of 72 on four fields of
news, "Which field is this news about?" and "Classify the sentence." were answered right 70 and 61
times by SmolLM2-135M-Instruct, 58 and 62 times by Gemma-3-270M. Half of these, 16 reviews and 24
tickets, with two questions each, are 152, of which SmolLM2 had right 132 with this wording, 121
without the options in it (101 in its chat template), 97 with "The answer is", 85 with the question
once more and "Answer:" behind it. Yes or no is beyond such models: they told whether a sentence is
of a field no better than chance does (an area under the curve of 0.51), and whether a review is
good with 0.92. A choice of two named options asks them better than a predicate.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from core.types import ClassifyResult, Message
from core.wires.questions import (
    Answer,
    Choice,
    ChoiceAnswer,
    DecisionRequest,
    Evidence,
    Predicate,
    PredicateAnswer,
    Question,
    Score,
    ScoreAnswer,
    choice_confidence,
    expected_score,
    score_confidence,
)

LABEL_PREFIX = " "
"""What stands between prompt and label, as by default in `core.GenerateConfig`."""

_CLASSIFIED, _SO = "This is classified as", "The answer is"
_YES, _NO = "yes", "no"
_END = "\n"  # behind each label where one begins another: no label has a line break of its own
_LONGEST = 64  # characters of a level that is read by its words; probabilities favour short ones


@dataclass(frozen=True, slots=True)
class Reading:
    """One question about one state.

    ``labels`` are for `core.GenerateConfig`, in the order of the options or levels; of a predicate,
    yes and no. Readings with the same labels may share a call of ``classify``.
    """

    question: Question
    state: str
    asked: str
    opening: str
    labels: tuple[str, ...]

    def as_text(self) -> str:
        """The prompt for a model without a chat template, and for most small ones."""
        said = [self.state, self.opening]
        return _joined([self.asked, " ".join(text for text in said if text)])

    def as_messages(self) -> tuple[Message, ...]:
        """The conversation for one with a template; its prompt is ``render_chat(...) + opening``.

        So that the model's answer begins with the words that lead to a label.
        """
        return (Message("user", _joined([self.asked, self.state]) or self.opening),)

    def answer(self, result: ClassifyResult, *, level: str = "raw") -> Answer:
        """The answer in the labels' probabilities. Raises the result's error where it has one.

        ``level`` says what was done to the probabilities: `core.wires.questions.Evidence`.
        """
        shares, evidence = self._shares(result), self._evidence(result, level)
        match self.question:
            case Predicate():
                return PredicateAnswer(shares[0], evidence)
            case Choice(options=options):
                best = max(range(len(shares)), key=lambda place: shares[place])
                confidence = choice_confidence(shares)
                return ChoiceAnswer(options[best].value, shares, confidence, evidence)
            case _:
                score, confidence = expected_score(shares), score_confidence(shares)
                return ScoreAnswer(score, shares, confidence, evidence)

    def _shares(self, result: ClassifyResult) -> tuple[float, ...]:
        found = result.raise_for_error().probabilities
        if found is None or found.keys() != set(self.labels):
            raise ValueError("The result is not of a classify call with this reading's labels.")
        return tuple(found[label] for label in self.labels)

    def _evidence(self, result: ClassifyResult, level: str) -> Evidence:
        logprobs = result.logprobs
        told = None if logprobs is None else tuple(logprobs[label] for label in self.labels)
        return Evidence(result.label_mass, result.margin, told, level)


def readings(request: DecisionRequest) -> tuple[Reading, ...]:
    """The readings of a request, one for each question, in their order."""
    return tuple(reading(question, request.state) for question in request.questions)


def reading(question: Question, state: str) -> Reading:
    """How one question is put about one state."""
    asked, opening, labels = _put(question)
    return Reading(question, state.strip(), asked, opening, labels)


@lru_cache(maxsize=1024)  # the same questions are asked about many states
def _put(question: Question) -> tuple[str, str, tuple[str, ...]]:
    """What stands before the state, what behind it, and the labels."""
    instructions = question.instructions.strip()
    if isinstance(question, Predicate):
        told = [(_YES, question.true), (_NO, question.false)]
        return _joined([instructions, _lines(told)]), _SO, (_YES, _NO)
    if isinstance(question, Choice):
        words = _words([option.value for option in question.options])
        told = [*zip(words, (option.description for option in question.options), strict=True)]
        # In an order that is no one's, so that theirs cannot matter.
        return _listed(instructions, sorted(told)), _CLASSIFIED, _apart(words)

    words, descriptions = _levels(question)
    told = [*zip(words, descriptions, strict=True)]
    return _listed(instructions, told), _CLASSIFIED, _apart(words)


def _levels(question: Score) -> tuple[list[str], list[str]]:
    """What the levels are called, and what is told of each."""
    words = _words([level.label for level in question.levels])
    descriptions = [level.description for level in question.levels]
    if max(map(len, words)) <= _LONGEST:
        return words, descriptions
    whole = [f"{word} {told}" for word, told in zip(words, descriptions, strict=True)]
    return [str(number) for number in range(len(words))], whole


def _words(values: Sequence[str | bool]) -> list[str]:
    """What each value is called in a prompt: one line, no two alike.

    The text "true" and the truth value, or "a" and " a", would be: there, all of them are written
    as JSON, in which nothing is like another.
    """
    plain = [" ".join(_plain(value).split()) for value in values]
    if "" not in plain and len({*plain}) == len(plain):
        return plain
    exact = [json.dumps(value, ensure_ascii=False) for value in values]
    if len({*exact}) == len(exact):
        return exact
    return [f"{number}: {word}" for number, word in enumerate(exact)]  # levels may repeat


def _plain(value: str | bool) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _apart(words: Sequence[str]) -> tuple[str, ...]:
    """The words as labels, of which none begins another: it would have the other's share, too."""
    ordered = sorted(words)
    nested = any(b.startswith(a) for a, b in pairwise(ordered))
    return tuple(word + _END for word in words) if nested else tuple(words)


def _listed(instructions: str, told: Sequence[tuple[str, str]]) -> str:
    """The instructions with the options: in a line, or with a line for each that is described."""
    if any(text.strip() for _, text in told):
        return _joined([instructions, _lines(told, all_of_them=True)])
    options = f"Options: {', '.join(word for word, _ in told)}."
    return f"{instructions} {options}".lstrip()


def _lines(told: Sequence[tuple[str, str]], *, all_of_them: bool = False) -> str:
    lines = (f"{word}: {' '.join(text.split())}" if text.strip() else word for word, text in told)
    kept = (all_of_them or text.strip() for _, text in told)
    return "\n".join(line for line, keep in zip(lines, kept, strict=True) if keep)


def _joined(paragraphs: Sequence[str]) -> str:
    return "\n\n".join(text for text in paragraphs if text)
