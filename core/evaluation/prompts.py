"""From an item to what the model reads: a template, examples with their answers before it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from string import ascii_uppercase

from core.errors import EvaluationError
from core.evaluation.items import Item
from core.extensions import Tokenizing
from core.labels import label_texts
from core.tasks.folds import text_key
from core.tasks.template import filled, taken
from core.types import Message

PLAIN, LETTERED, CHAT = (
    "Question: {question}\nAnswer:",
    "Question: {question}\n{choices}\nAnswer:",
    "{question}",
)
"""The usual templates: lm-evaluation-harness's for GSM8K, that of MMLU's kind, and of a chat."""


@dataclass(frozen=True, slots=True)
class Prompting:
    """How items are put to a model.

    ``template`` takes ``{question}``, ``{choices}`` (one a line, with letters), and any field of
    the record; None is the usual one. ``examples`` stand before each item in their order, each with
    its answer, ``separator`` between them; in a ``chat`` they are turns of the conversation.
    ``prefix`` stands between a prompt and an answer, unless the prompt ends in white space.
    With ``letters``, the model is asked for the letter of a choice, and not for its text.
    """

    template: str | None = None
    examples: tuple[Item, ...] = ()
    letters: bool = False
    separator: str = "\n\n"
    prefix: str = " "
    chat: bool = False
    system: str | None = None

    def prompt(self, item: Item, model: object = None) -> str:
        """The prompt of an item. A chat needs the ``model``, whose template it goes through.

        Raises `EvaluationError` for a field that the item lacks, and what the template raises.
        """
        if self.chat:
            assert isinstance(model, Tokenizing)
            return model.render_chat(self.messages(item))
        shown = [self._text(example) + self._ending(example) for example in self.examples]
        return self.separator.join([*shown, self._text(item)])

    def messages(self, item: Item) -> list[Message]:
        """The conversation whose next answer is the item's."""
        found = [] if self.system is None else [Message("system", self.system)]
        for example in self.examples:
            found.append(Message("user", self._text(example)))
            found.append(Message("assistant", self._answer(example)))
        return [*found, Message("user", self._text(item))]

    def endings(self, item: Item, prompt: str) -> list[str]:
        """What may follow the prompt, one for each choice."""
        return label_texts(prompt, self.names(item), self.prefix)

    def names(self, item: Item) -> tuple[str, ...]:
        """What the model is asked for: the choices, or their letters.

        Raises `EvaluationError` for more choices than there are letters.
        """
        if not self.letters:
            return item.choices
        if len(item.choices) > len(ascii_uppercase):
            raise EvaluationError(
                f"The item has {len(item.choices)} choices, and there are {len(ascii_uppercase)} "
                "letters. Ask for the choices themselves."
            )
        return tuple(ascii_uppercase[: len(item.choices)])

    @property
    def used(self) -> str:
        """The template that is filled in."""
        if self.template is not None:
            return self.template
        usual = CHAT if self.chat else PLAIN
        return LETTERED if self.letters else usual

    def check(self) -> None:
        """Raise `EvaluationError` for a template that no item is seen in."""
        named = taken(self.used)
        if not named:
            raise EvaluationError(
                f"The template {self.used!r:.80} takes nothing of an item. Put {{question}} where "
                "the question belongs."
            )
        if self.letters and "choices" not in named:
            raise EvaluationError(
                "Letters mean nothing without {choices} in the template, which lists them."
            )

    def _text(self, item: Item) -> str:
        self.names(item)  # or some choices would have no letter
        lettered = zip(ascii_uppercase, item.choices, strict=False)
        values = {name: _shown(value) for name, value in item.fields.items()}
        values |= {
            "question": item.question,
            "choices": "\n".join(f"{letter}. {choice}" for letter, choice in lettered),
        }
        try:
            return filled(self.used, **values)
        except KeyError as missing:
            raise EvaluationError(
                f"The item has no {missing}, which the template takes. Braces that stand for "
                "themselves are doubled."
            ) from None

    def _answer(self, example: Item) -> str:
        return self.names(example)[example.gold] if example.choices else example.answers[0]

    def _ending(self, example: Item) -> str:
        [ending] = label_texts(self._text(example), [self._answer(example)], self.prefix)
        return ending


def fingerprint(prompting: Prompting) -> dict[str, object]:
    """All that the prompts depend on, for JSON."""
    return {
        "template": prompting.used,
        "examples": [[e.question, [*e.answers], [*e.choices]] for e in prompting.examples],
        "letters": prompting.letters,
        "separator": prompting.separator,
        "prefix": prompting.prefix,
        "chat": prompting.chat,
        "system": prompting.system,
    }


def told_by(item: Item) -> tuple[object, ...]:
    """What an example that gives the item's answer away has in common with it."""
    return text_key(item.question), item.choices


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
