"""Prompts of items: a template, after examples with their answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from string import ascii_uppercase

from core.errors import EvaluationError
from core.extensions import Tokenizing
from core.kit.labels import label_texts
from core.options import LABEL_SENTENCE, GenerateConfig
from core.rendering import Rendering
from core.types import Message
from core_tasks.evaluation.items import Item
from core_tasks.folds import text_key
from core_tasks.template import Template

PLAIN, LETTERED, CHAT = (
    "Question: {question}\nAnswer:",
    "Question: {question}\n{choices}\nAnswer:",
    "{question}",
)
"""The usual templates: lm-evaluation-harness's for GSM8K, one like MMLU's, and one for chat."""


@dataclass(frozen=True, slots=True)
class Prompting:
    """Conversion of items to prompts.

    ``template`` may use ``{question}``, ``{choices}`` (one per line, with letters), and any field
    of the record; None is the usual one. ``examples`` precede each item in order, each with its
    answer, with ``separator`` in between; in a ``chat`` they are turns of the conversation.
    ``prefix`` is inserted between a prompt and an answer, like ``label_prefix``;
    ``label_sentence`` is that of a choice, for a model of label sentences.
    With ``letters``, the model answers with the letter of a choice instead of its text.
    ``chat_template_kwargs`` are passed to a chat's template; ``opening`` is its response prefix.
    """

    template: str | None = None
    examples: tuple[Item, ...] = ()
    letters: bool = False
    separator: str = "\n\n"
    prefix: str = " "
    chat: bool = False
    system: str | None = None
    chat_template_kwargs: Mapping[str, object] | None = field(default=None, hash=False)
    opening: str = ""
    label_sentence: str = LABEL_SENTENCE

    def prompt(self, item: Item, model: object = None) -> str:
        """Return the prompt of an item. A chat needs the ``model``, whose template formats it.

        Raises `EvaluationError` for a field that the item lacks, and the template's errors.
        """
        return self.put(item, rendering(self, model) if self.chat else None)

    def put(self, item: Item, render: Callable[[list[Message]], str] | None = None) -> str:
        """Return the prompt of an item; ``render`` formats a chat. Raises like `prompt`."""
        if render is not None:
            return render(self.messages(item))
        shown = [self._text(example) + self._ending(example) for example in self.examples]
        return self.separator.join([*shown, self._text(item)])

    def messages(self, item: Item) -> list[Message]:
        """Return the conversation whose next answer is the item's."""
        turns = [] if self.system is None else [Message("system", self.system)]
        for example in self.examples:
            turns.append(Message("user", self._text(example)))
            turns.append(Message("assistant", self._answer(example)))
        return [*turns, Message("user", self._text(item))]

    def endings(self, item: Item, prompt: str) -> list[str]:
        """Return the possible continuations of the prompt, one for each choice."""
        return label_texts(prompt, self.names(item), self.prefix)

    def names(self, item: Item) -> tuple[str, ...]:
        """Return the possible answers: the choices, or their letters.

        Raises `EvaluationError` for more choices than there are letters.
        """
        if not self.letters:
            return item.choices
        if len(item.choices) > len(ascii_uppercase):
            raise EvaluationError(
                f"The item has {len(item.choices)} choices, more than the {len(ascii_uppercase)} "
                "letters. Do not use letters."
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
        """Raise `EvaluationError` for a template without fields, and options that need a chat."""
        if not self.chat and (self.chat_template_kwargs or self.opening):
            raise EvaluationError(
                "chat_template_kwargs and opening require the model's chat template: set chat=True."
            )
        fields = Template(self.used).fields
        if not fields:
            raise EvaluationError(
                f"The template {self.used!r:.80} uses no field of an item. Put {{question}} where "
                "the question belongs."
            )
        if self.letters and "choices" not in fields:
            raise EvaluationError("Letters require {choices} in the template, which lists them.")

    def _text(self, item: Item) -> str:
        self.names(item)  # or some choices would have no letter
        lettered = zip(ascii_uppercase, item.choices, strict=False)
        values = {name: _shown(value) for name, value in item.fields.items()}
        values |= {
            "question": item.question,
            "choices": "\n".join(f"{letter}. {choice}" for letter, choice in lettered),
        }
        try:
            return Template(self.used).filled(values)
        except KeyError as missing:
            raise EvaluationError(
                f"The item has no field {missing}, which the template uses. Double literal braces."
            ) from None

    def _answer(self, example: Item) -> str:
        return self.names(example)[example.gold] if example.choices else example.answers[0]

    def _ending(self, example: Item) -> str:
        [ending] = label_texts(self._text(example), [self._answer(example)], self.prefix)
        return ending


def rendering(prompting: Prompting, model: object, *, labels: bool = False) -> Rendering:
    """Return the function from conversations to prompts; with ``labels``, for classification.

    Raises `OptionError` for variables that are not JSON values.
    """
    assert isinstance(model, Tokenizing)
    config = GenerateConfig(chat_template_kwargs=prompting.chat_template_kwargs)
    return Rendering(model, config, prompting.opening, labels=labels)


def fingerprint(prompting: Prompting) -> dict[str, object]:
    """Return everything that the prompts depend on, for JSON."""
    record: dict[str, object] = {
        "template": prompting.used,
        "examples": [[e.question, [*e.answers], [*e.choices]] for e in prompting.examples],
        "letters": prompting.letters,
        "separator": prompting.separator,
        "prefix": prompting.prefix,
        "chat": prompting.chat,
        "system": prompting.system,
    }
    if prompting.chat_template_kwargs:
        record["chat_template_kwargs"] = dict(prompting.chat_template_kwargs)
    if prompting.label_sentence != LABEL_SENTENCE:
        record["label_sentence"] = prompting.label_sentence
    return record | ({"opening": prompting.opening} if prompting.opening else {})


def told_by(item: Item) -> tuple[object, ...]:
    """Return the key that an item shares with examples that give its answer away."""
    return text_key(item.question), item.choices


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
