"""Examples as rows of tokens, with the learned tokens marked.

A row's first token is never learned, because nothing precedes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.errors import ChatTemplateError, CoreError, LabelError, TrainingError
from core.kit.base import never_stop
from core.kit.labels import common_length
from core.options import GenerateConfig
from core.training import TrainConfig, TrainingExample
from core.types import Message, ModelInfo
from core_runtime.rows import token_error
from core_runtime.text.label_tokens import LabelTokens
from core_runtime.tokenizer.model_tokenizer import Tokenizer
from core_tasks.template import Template

_SHOWN = 40  # characters of a text in an error


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One example: its tokens, and the positions of the learned ones, in order."""

    ids: tuple[int, ...]
    learned: tuple[int, ...]


class RowBuilder:
    """The conversion of examples to rows, with the options of one training.

    ``labels``: those for `classify`; ``info``: the model's. Raises `core.LabelError` for
    indistinguishable labels, `core.TaskError` for a template without ``{text}``.
    """

    def __init__(
        self, tokenizer: Tokenizer, config: TrainConfig, labels: Sequence[str], info: ModelInfo
    ) -> None:
        self._tokenizer, self._config = tokenizer, config
        self._most = min(config.max_tokens, info.context_length)
        self._size = info.vocab_size
        if not labels:
            return
        Template(config.template).check({"text"})
        labelling = GenerateConfig(labels=tuple(labels), label_prefix=config.label_prefix)
        self._places: Mapping[str, int] = {label: i for i, label in enumerate(labelling.labels)}
        self._labels = LabelTokens(tokenizer, labelling.labels, labelling.label_prefix)

    def of(self, examples: Sequence[TrainingExample], name: str) -> list[TokenRow]:
        """Return the row of each example.

        Raises `core.TrainingError` for examples without anything to learn.

        ``name`` is the examples' name in errors, where they are numbered from 1.
        """
        rows = []
        for number, example in enumerate(examples, 1):
            try:
                row = self._row(example)
                self._check(row)
            except LabelError:
                raise  # its message already names the labels
            except (CoreError, ValueError) as error:
                raise TrainingError(f"{name} {number} ({_short(example)}): {error}") from error
            rows.append(row)
        return rows

    def _row(self, example: TrainingExample) -> TokenRow:
        form = form_of(example)
        if form == "label":
            return self._labelled(example)
        if form == "messages":
            return self._conversation(example.messages)
        if form == "text":
            return self._whole(self._ended(self._tokenizer.encode(example.text)))
        prompt = self._tokenizer.encode(example.prompt)
        [ids] = self._tokenizer.encode_continued(example.prompt, [example.completion])
        start = common_length(prompt, ids)
        ids = self._ended(ids)
        return self._learned(ids, range(start, len(ids)))

    def _labelled(self, example: TrainingExample) -> TokenRow:
        """Return a text in its template, and the tokens by which `classify` scores its label."""
        prompt = Template(self._config.template).filled({"text": example.text})
        ids = self._tokenizer.encode(prompt)
        [question] = self._labels.after([prompt], [ids])
        path = question.trie.paths[self._places[example.label or ""]]
        whole = [*ids[: question.anchor], *path]
        return self._learned(whole, range(question.anchor, len(whole)))

    def _conversation(self, messages: Sequence[Message]) -> TokenRow:
        """Return all messages; the assistant's turns are learned after their generation prompt."""
        if not any(message.role == "assistant" for message in messages):
            raise ChatTemplateError(
                "no message is from the assistant, so there is nothing to learn."
            )
        whole = self._tokenizer.encode(self._tokenizer.render_said(messages))
        learned: list[int] = []
        for index, message in enumerate(messages):
            if message.role != "assistant":
                continue
            before = self._tokenizer.render_chat(messages[:index], never_stop)
            until_here = self._tokenizer.render_said(messages[: index + 1])
            start = common_length(self._tokenizer.encode(before), whole)
            end = common_length(self._tokenizer.encode(until_here), whole)
            learned += range(max(start, learned[-1] + 1 if learned else 0), end)
        return self._learned(whole, learned)

    def _learned(self, ids: Sequence[int], places: Sequence[int]) -> TokenRow:
        if not self._config.mask_prompt:
            return self._whole(ids)
        return TokenRow(tuple(ids), tuple(place for place in places if place > 0))

    def _whole(self, ids: Sequence[int]) -> TokenRow:
        return TokenRow(tuple(ids), tuple(range(1, len(ids))))

    def _ended(self, ids: Sequence[int]) -> list[int]:
        """Append the end token, if the model has one with an embedding."""
        end = self._tokenizer.end_id
        if end is None or end >= self._size or (ids and ids[-1] == end):
            return [*ids]
        return [*ids, end]

    def _check(self, row: TokenRow) -> None:
        if len(row.ids) > self._most:
            raise ValueError(
                f"it has {len(row.ids)} tokens, more than {self._most} (the smaller of max_tokens "
                "and the model's context length). Shorten it, or raise max_tokens."
            )
        if error := token_error(self._tokenizer, self._size, row.ids, "it"):
            raise error
        if not row.learned:
            raise ValueError("it has no token to learn. Remove it.")


def form_of(example: TrainingExample) -> str:
    """Return which of the four forms an example has; raise ValueError for none or several."""
    forms = {
        "messages": bool(example.messages),
        "completion": bool(example.completion),
        "label": example.label is not None,
        "text": bool(example.text) and example.label is None,
    }
    forms_given = [form for form, given in forms.items() if given]
    if len(forms_given) != 1:
        given_forms = " and ".join(forms_given) or "nothing"
        raise ValueError(
            f"it has {given_forms}; an example needs exactly one of: a prompt and its completion, "
            "messages, a text, or a text and its label."
        )
    return forms_given[0]


def labels_of(examples: Sequence[TrainingExample], config: TrainConfig) -> tuple[str, ...]:
    """Return the labels of a training: those in the options, or the occurring ones, sorted.

    Raises `core.TrainingError` for an example with another label, `core.LabelError` for a single
    label.
    """
    occurring = [*dict.fromkeys(example.label for example in examples if example.label is not None)]
    labels = config.labels or tuple(sorted(occurring))
    for label in occurring:
        if label not in labels:
            raise TrainingError(
                f"Unknown label {label!r} in the examples; labels are "
                f"{', '.join(map(repr, labels))}. Add it to the labels, or remove its examples."
            )
    if occurring and len(labels) < 2:
        raise LabelError(
            f"All examples have the label {labels[0]!r}. Add examples of another label."
        )
    return labels if occurring else ()


def token_numbers(rows: Sequence[TokenRow]) -> Iterator[int]:
    """Yield the contents of the rows as one stream of numbers, for their fingerprint."""
    for row in rows:
        yield len(row.ids)
        yield from row.ids
        yield from row.learned


def _short(example: TrainingExample) -> str:
    first = example.messages[0].content if example.messages else ""
    words = example.text or example.prompt or first or example.completion
    return repr(words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…")
