"""Items of an evaluation: a question, its right answers, and optional choices."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase

from core.errors import EvaluationError

QUESTIONS = ("question", "ctx", "query", "problem", "prompt", "text", "input")
ANSWERS = ("answer", "label", "gold", "answerKey", "target", "solution", "output")
CHOICES = ("choices", "endings", "options")
"""Field names in public data sets: HellaSwag, MMLU, ARC, GSM8K and similar ones."""


@dataclass(frozen=True, slots=True)
class Item:
    """A question and its right answers, any of which is correct.

    With ``choices``, ``answers`` only has the right one of them. ``fields`` are other fields for
    templates. Raises `EvaluationError` for an item that cannot be marked.
    """

    question: str
    answers: tuple[str, ...]
    choices: tuple[str, ...] = ()
    fields: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.answers or any(not answer.strip() for answer in self.answers):
            raise EvaluationError("The item has no answer, or an empty one.")
        if self.choices:
            _check_choices(self.choices)
            if len(self.answers) != 1 or self.answers[0] not in self.choices:
                raise _outside(self.answers[0], self.choices)

    @property
    def gold(self) -> int:
        """The index of the right one among the choices."""
        return self.choices.index(self.answers[0])


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a record's fields that make up an item; None tries the usual names."""

    question: str | None = None
    answer: str | None = None
    choices: str | None = None

    def item(self, record: Mapping[str, object]) -> Item:
        """Return the item in a record. Raises `EvaluationError` for a missing or invalid field.

        With choices, the answer is the text of one, its number from 0, or its letter. A record
        with several right answers lists them.
        """
        question = _string("question", _found(record, self.question, QUESTIONS, "question"))
        if not question.strip():
            raise EvaluationError("The question of the item is blank.")
        choices, letters = _choices(_value(record, self.choices, CHOICES))
        answer = _found(record, self.answer, ANSWERS, "answer")
        if choices:
            right: tuple[str, ...] = (choices[_place(answer, choices, letters)],)
        else:
            right = tuple(map(_shown, answer if isinstance(answer, list) else [answer]))
        return Item(question, right, choices, record)


def _value(record: Mapping[str, object], name: str | None, usual: Sequence[str]) -> object:
    if name is not None and name not in record:
        raise EvaluationError(f"The item has no field {name!r}. Its fields are {_names(record)}.")
    names = usual if name is None else (name,)
    return next((record[key] for key in names if record.get(key) not in (None, "")), None)


def _found(
    record: Mapping[str, object], name: str | None, usual: Sequence[str], what: str
) -> object:
    value = _value(record, name, usual)
    if value is None or value == []:
        looked = repr(name) if name is not None else f"any of {', '.join(usual)}"
        raise EvaluationError(f"The item has no {what} in {looked}.")
    return value


def _choices(value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the choices, and their labels if the data set has them, like ARC."""
    if isinstance(value, str):
        return _choices(_listed(value))
    letters: object = ()
    if isinstance(value, Mapping):
        letters, value = value.get("label"), value.get("text", value)
    if value is None:
        return (), ()
    if not isinstance(value, list | tuple) or not all(isinstance(e, str) for e in value):
        raise EvaluationError(
            'The choices are not a list of texts. Write ["a", "b"], or in a table a|b.'
        )
    named = letters if isinstance(letters, list | tuple) and len(letters) == len(value) else ()
    return tuple(value), tuple(map(str, named))


def _listed(text: str) -> object:
    if text.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return [part.strip() for part in text.split("|")]


def _place(answer: object, choices: Sequence[str], letters: Sequence[str]) -> int:
    """Return the index of the right choice: by its text, else its number, else its letter."""
    if isinstance(answer, str):
        if answer in choices:
            return choices.index(answer)
        if answer in letters:
            return letters.index(answer)
        if answer.isdecimal() and int(answer) < len(choices):
            return int(answer)
        letter = answer.strip().rstrip(".)").upper()
        if len(letter) == 1 and letter in ascii_uppercase[: len(choices)]:
            return ascii_uppercase.index(letter)
    elif isinstance(answer, int) and 0 <= answer < len(choices):
        return int(answer)
    raise _outside(answer, choices)


def _check_choices(choices: Sequence[str]) -> None:
    seen: dict[str, int] = {}
    for number, choice in enumerate(choices, 1):
        plain = unicodedata.normalize("NFC", " ".join(choice.split()))
        if not plain:
            raise EvaluationError(f"Choice {number} of the item is empty.")
        if plain in seen:
            raise EvaluationError(f"Choices {seen[plain]} and {number} are equal: {choice!r:.80}.")
        seen[plain] = number
    if len(choices) < 2:
        raise EvaluationError(f"The item has only one choice: {choices[0]!r:.80}.")


def _outside(answer: object, choices: Sequence[str]) -> EvaluationError:
    return EvaluationError(
        f"The answer {answer!r:.80} is not one of the {len(choices)} choices: expected the text "
        "of one, its number from 0, or its letter."
    )


def _string(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise EvaluationError(f"The item's {what} is not a text: {value!r:.80}.")
    return value


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _names(record: Mapping[str, object]) -> str:
    return ", ".join(map(repr, record))[:300] or "none"
