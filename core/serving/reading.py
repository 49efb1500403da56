"""Prompts that are read, not continued: what ``classify`` and ``score`` run, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.errors import CoreError, PromptTooLongError, RequestError
from core.labels import label_paths
from core.options import GenerateConfig
from core.serving.label_tokens import LabelQuestion, LabelTokens
from core.serving.prompts import ids_error, text_error
from core.serving.served import ServedModel
from core.types import ClassifyResult


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt that can run: where it came from, its tokens, its labels."""

    index: int
    ids: list[int]
    question: LabelQuestion | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Token ids of a prompt and, behind ``start``, of its continuation."""

    ids: Sequence[int]
    start: int


def classify_rows(
    model: ServedModel, prompts: Sequence[str], config: GenerateConfig, first: int = 0
) -> tuple[list[Row], dict[int, CoreError]]:
    """Tokenise what can run; the errors of the other prompts, by their index, which begins there.

    Raises `core.LabelError` when labels cannot be told apart.
    """
    found = {index: text_error(prompt) for index, prompt in enumerate(prompts, first)}
    sound = [index for index, error in found.items() if error is None]
    encoded = model.tokenizer.encode_batch([prompts[index - first] for index in sound])
    found |= {i: ids_error(model, ids) for i, ids in zip(sound, encoded, strict=True)}
    rows = [Row(i, ids, None) for i, ids in zip(sound, encoded, strict=True) if found[i] is None]
    if config.labels:
        rows = _asked(model, [prompts[row.index - first] for row in rows], rows, config)
        found |= {row.index: _labels_error(model, row.question) for row in rows}
    errors = {index: error for index, error in found.items() if error is not None}
    return [row for row in rows if row.index not in errors], errors


def _asked(
    model: ServedModel, prompts: Sequence[str], rows: Sequence[Row], config: GenerateConfig
) -> list[Row]:
    """The rows, each with its prompt's question about the labels."""
    labels = LabelTokens(model.tokenizer, config.labels, config.label_prefix)
    questions = labels.behind(prompts, [row.ids for row in rows])
    return [
        Row(row.index, row.ids, question) for row, question in zip(rows, questions, strict=True)
    ]


def _labels_error(model: ServedModel, question: LabelQuestion | None) -> CoreError | None:
    """A label of several tokens that does not fit behind its prompt; its last one is not fed."""
    if question is None:
        return None
    length = question.anchor + max(len(path) for path in question.trie.prefixes)
    limit = model.info.context_length
    if length <= limit:
        return None
    return PromptTooLongError(length, limit, "The prompt with its longest label")


def labels_alone(config: GenerateConfig) -> bool:
    """Whether nothing is wanted that the head over the whole vocabulary gives."""
    asked = config.return_logits or config.return_logprobs or not config.labels
    return config.labels_only and not asked


def of_labels(result: ClassifyResult) -> ClassifyResult:
    """The result where `labels_alone`, however it was computed."""
    return replace(result, token=None, logprobs=None, label_mass=None)


def pair(model: ServedModel, prompt: str, continuation: str) -> Pair | CoreError:
    """The tokens of a continuation behind its prompt, or what keeps them from being scored."""
    error = text_error(prompt) or text_error(continuation, "continuation")
    if error is not None:
        return error
    tokenizer = model.tokenizer
    head, lead = tokenizer.encode(prompt), len(tokenizer.encode(""))  # BOS, or nothing
    continued = tokenizer.encode_continued(prompt, [continuation])
    # Behind the prompt as a label is: what a token spans of the prompt's end is scored with it.
    start, [path] = label_paths(head, continued, lambda: [tokenizer.encode(continuation)[lead:]])
    ids = [*head[:start], *path]
    if start == 0 or not path:
        return RequestError(
            f"The continuation {continuation!r:.60} adds no token of its own behind this prompt. "
            "Give a longer prompt, or another continuation."
        )
    # The last token is scored and never fed.
    return ids_error(model, ids[:-1]) or ids_error(model, ids[-1:]) or Pair(ids, start)
