"""Scoring prompts: a question's prompt, its labels, and the answer from their probabilities.

The question comes first and the state after it, so that the shared prefix of many states is
computed once. The labels continue the prompt, which ends with words that lead to them, right after
the state, so nothing depends on the order of the options: without descriptions they are not in the
prompt at all, and described ones are listed in a fixed order. Each question and state has its own
prompt, so questions are independent. Letters that represent the options are only used on request:
large models read them well, small ones prefer certain positions.

The wording was chosen by accuracy, with plain sentences, uncalibrated, of SmolLM2-135M-Instruct
on mlx_cpu: 72 headlines with three questions each ("Which field is this news about?", "Which topic
is this?", "Classify the sentence."), and 96 topics, tickets and reviews of benchmarks/labelled with
one. Without a list and with "Topic:" after the state it got 70, 69 and 70 right, then 74, 37 and
87; with "Category:" 64, 67, 64, 76, 38, 90; with "This is classified as" 64, 65, 66, 76, 25, 91;
and with that after a list of the options 70, 66, 61, 46, 37, 88.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_uppercase
from typing import TypeAlias

from core.errors import RequestError
from core.kit.labels import choice_confidence, score_confidence
from core.types import ClassifyResult, Message
from core_wires.byte_cache import ByteCache
from core_wires.questions import (
    Answer,
    Choice,
    ChoiceAnswer,
    DecisionRequest,
    Evidence,
    How,
    Predicate,
    PredicateAnswer,
    Question,
    Score,
    ScoreAnswer,
    expected_score,
)

_TOPIC, _CLASSIFIED, _SO, _ANSWER = "Topic:", "This is classified as", "The answer is", "Answer:"
_YES, _NO = "yes", "no"
_END = "\n"  # after each label if one is a prefix of another: no label contains a line break
_LONGEST = 64  # characters of a level that is read by its words; probabilities favour short ones
_Wording: TypeAlias = tuple[str, str, tuple[str, ...]]
_WORDINGS: ByteCache[tuple[How, Question], _Wording] = ByteCache(16 << 20)  # for many states


@dataclass(frozen=True, slots=True)
class Reading:
    """One question about one state.

    ``labels`` are for `core.GenerateConfig`, in the order of the options or levels; of a predicate,
    yes and no. ``how`` says whether they are the options themselves, or letters. Readings with the
    same labels may share a call of ``classify``.
    """

    question: Question
    state: str
    question_text: str
    opening: str
    labels: tuple[str, ...]
    how: How = "labels"

    def as_text(self) -> str:
        """Return the prompt for a model without a chat template, and for most small ones."""
        end = " ".join(text for text in (self.state, self.opening) if text)
        return _joined([self.question_text, end])

    def as_messages(self) -> tuple[Message, ...]:
        """Return the conversation for a model with a template.

        Its prompt is ``render_chat(...) + opening``, so that the model's answer begins with the
        words that lead to a label.
        """
        return (Message("user", _joined([self.question_text, self.state]) or self.opening),)

    def answer(self, result: ClassifyResult, *, level: str = "raw") -> Answer:
        """Return the answer from the labels' probabilities. Raises the result's error, if any.

        ``level`` is their calibration level: `core_wires.questions.Evidence`.
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
        probabilities = result.raise_for_error().probabilities
        if probabilities is None or probabilities.keys() != set(self.labels):
            raise ValueError("The result is not of a classify call with this reading's labels.")
        return tuple(probabilities[label] for label in self.labels)

    def _evidence(self, result: ClassifyResult, level: str) -> Evidence:
        by_label = result.logprobs
        logprobs = None if by_label is None else tuple(by_label[label] for label in self.labels)
        return Evidence(result.label_mass, result.margin, logprobs, level, self.how)


def readings(request: DecisionRequest) -> tuple[Reading, ...]:
    """Return the readings of a request, one for each question, in their order."""
    how = request.reading
    return tuple(reading(question, request.state, how) for question in request.questions)


def sentence_readings(request: DecisionRequest) -> tuple[Reading, ...]:
    """Return the readings for a model of label sentences, which follow no prompt.

    The state alone is compared with the sentence of each option or level, with its description; the
    instructions are not read. Raises `RequestError` for a predicate, and for letters.
    """
    if request.reading == "letters":
        raise RequestError(
            "This model compares texts with label sentences and cannot read letters. Use the "
            "reading 'labels'."
        )
    return tuple(_of_sentences(question, request.state) for question in request.questions)


def _of_sentences(question: Question, state: str) -> Reading:
    if isinstance(question, Predicate):
        raise RequestError(
            "This model compares texts with label sentences and answers no question with yes or "
            "no. Ask for a choice, or use a language model."
        )
    words, descriptions = _options(question)
    labels = tuple(_lines([option]) for option in zip(words, descriptions, strict=True))
    return Reading(question, state.strip(), "", "", labels)


def reading(question: Question, state: str, how: How = "labels") -> Reading:
    """Return the reading of one question about one state.

    A predicate always has the labels yes and no.
    """
    if isinstance(question, Predicate):
        how = "labels"
    wording = _WORDINGS.get((how, question))
    if wording is None:
        wording = _with_letters(question) if how == "letters" else _with_labels(question)
        _WORDINGS.put((how, question), wording)
    return Reading(question, state.strip(), *wording, how)


def _with_labels(question: Question) -> _Wording:
    """Return the text before the state, the text after it, and the labels."""
    instructions = question.instructions.strip()
    if isinstance(question, Predicate):
        sides = [(_YES, question.true), (_NO, question.false)]
        described = [side for side in sides if side[1].strip()]
        return _joined([instructions, _lines(described)]), _SO, (_YES, _NO)
    words, descriptions = _options(question)
    options = [*zip(words, descriptions, strict=True)]
    if not any(text.strip() for text in descriptions):
        return instructions, _TOPIC if isinstance(question, Choice) else _CLASSIFIED, _apart(words)
    if isinstance(question, Choice):
        options.sort()  # a fixed order, so that the order in the request cannot matter
    return _joined([instructions, _lines(options)]), _CLASSIFIED, _apart(words)


def _with_letters(question: Question) -> _Wording:
    """Return the same with letters as labels; the options of a choice are in a fixed order."""
    assert not isinstance(question, Predicate)
    words, descriptions = _options(question)
    options = [*zip(words, descriptions, strict=True)]
    ordered = sorted(options) if isinstance(question, Choice) else options
    letters = dict(zip(ordered, ascii_uppercase, strict=False))
    lines = _lines([(f"{letters[option]}: {option[0]}", option[1]) for option in ordered])
    question_text = _joined([question.instructions.strip(), lines])
    return question_text, _ANSWER, tuple(letters[option] for option in options)


def _options(question: Choice | Score) -> tuple[list[str], list[str]]:
    """Return the names of options or levels, and their descriptions."""
    if isinstance(question, Score):
        return _levels(question)
    words = _words([option.value for option in question.options])
    return words, [option.description for option in question.options]


def _levels(question: Score) -> tuple[list[str], list[str]]:
    """Return the names of the levels, and their descriptions."""
    words = _words([level.label for level in question.levels])
    descriptions = [level.description for level in question.levels]
    if max(map(len, words)) <= _LONGEST:
        return words, descriptions
    texts = [f"{word} {text}" for word, text in zip(words, descriptions, strict=True)]
    return [str(number) for number in range(len(words))], texts


def _words(values: Sequence[str | bool]) -> list[str]:
    """Return the unique one-line name of each value in a prompt.

    The text "true" and the truth value, or "a" and " a", would be equal: then all are written as
    JSON, in which they differ.
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
    """Return the words as labels that are not prefixes of each other.

    A prefix would include the longer label's probability.
    """
    ordered = sorted(words)
    nested = any(b.startswith(a) for a, b in pairwise(ordered))
    return tuple(word + _END for word in words) if nested else tuple(words)


def _lines(options: Sequence[tuple[str, str]]) -> str:
    """Return a line for each word, with its description if it has one."""
    texts = ((word, " ".join(text.split())) for word, text in options)
    return "\n".join(f"{word}: {text}" if text else word for word, text in texts)


def _joined(paragraphs: Sequence[str]) -> str:
    return "\n\n".join(text for text in paragraphs if text)
