"""Prompts as rows of tokens, or as the errors of prompts that cannot run."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from core.errors import (
    CoreError,
    EmptyPromptError,
    PromptTooLongError,
    RequestError,
)
from core.kit.base import STOPPED, Check
from core.kit.labels import LabelTrie, label_paths
from core.kit.support import text_error
from core.options import GenerateConfig
from core.types import ClassifyResult
from core_runtime.request import is_repeatable
from core_runtime.served import ServedModel
from core_runtime.text.label_tokens import LabelQuestion, LabelTokens
from core_runtime.text.tokenising import Tokenising
from core_runtime.text.tokenizer import ContinuingTokenizer, ServedTokenizer

_CHARACTER_BYTES = 4  # UTF-8's longest


def checked_ids(model: ServedModel, prompt: str, check: Check) -> list[int]:
    """Return the token ids of one prompt. Raises the errors of `prompt_error` and `ids_error`.

    ``check`` is polled while a long prompt is tokenised.
    """
    error = prompt_error(model, prompt)
    if error is not None:
        raise error
    ids = Tokenising(model.tokenizer, check).encode(prompt)
    error = ids_error(model, ids)
    if error is not None:
        raise error
    return ids


def prompt_error(model: ServedModel, text: str, name: str = "prompt") -> CoreError | None:
    """Return the error of a text that cannot be tokenised: `text_error`, or `length_error`.

    A text that spells special tokens is plain text, with a warning once per model.
    """
    model.tokenizer.special_texts.look(text)
    return text_error(text, name) or length_error(model, text, name)


def length_error(model: ServedModel, text: str, name: str = "prompt") -> CoreError | None:
    """Return the error of a text with more bytes than the context's tokens can have."""
    limit = model.info.context_length
    if len(text) * _CHARACTER_BYTES <= limit:
        return None
    least = model.tokenizer.fewest_tokens(text)
    if least <= limit:
        return None
    return PromptTooLongError(least, limit, f"The {name}", model.own_context, at_least=True)


def ids_error(model: ServedModel, ids: Sequence[int]) -> CoreError | None:
    """Return the error of a tokenised prompt that cannot run, or None."""
    limit, vocab_size = model.info.context_length, model.info.vocab_size
    if not ids:
        return EmptyPromptError(
            "The prompt has no token. If it has text, the tokenizer knows none of it."
        )
    if len(ids) > limit:
        return PromptTooLongError(len(ids), limit, own=model.own_context)
    return token_error(model.tokenizer, vocab_size, ids)


def token_error(
    tokenizer: ServedTokenizer, vocab_size: int, ids: Sequence[int], what: str = "The prompt"
) -> RequestError | None:
    """Return the error of a token without a row in the embedding, or None.

    Libraries read past the embedding, unchecked. Published tokenizers have such tokens: Gemma 3's
    `<image_soft_token>` is one beyond the embedding.
    """
    wrong = max(ids, default=0)
    if wrong < vocab_size:
        return None
    text = tokenizer.token_text(wrong)
    name = f" ({text!r:.60})" if text else ""
    return RequestError(
        f"{what} has the token id {wrong}{name}, for which the model has no embedding: its last "
        f"id is {vocab_size - 1}. Leave this token out."
    )


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One prompt that can run: its index, its tokens, its labels."""

    index: int
    ids: list[int]
    question: LabelQuestion | None

    @property
    def anchor(self) -> int:
        """The number of tokens before the labels; of all tokens without labels."""
        return self.question.anchor if self.question else len(self.ids)

    @property
    def read_from(self) -> int:
        """The first token whose hidden state is read; a shared prefix must end before it."""
        return min(len(self.ids), self.anchor) - 1

    @property
    def key(self) -> tuple[bytes, Hashable]:
        """Key of the row's result: its tokens, and the tokens of its labels."""
        labels = self.question and (self.question.anchor, self.question.trie.paths)
        return packed(self.ids), labels


def packed(ids: Sequence[int]) -> bytes:
    """Return the ids as bytes, which take a ninth of the memory of a tuple."""
    return array("I", ids).tobytes()


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """A continuation after its prompt: the ``ids`` that run, and its ``targets``.

    The last target is scored and never run. The first is predicted at ``read_from``.
    """

    index: int
    ids: Sequence[int]
    read_from: int
    targets: Sequence[int]

    @property
    def key(self) -> tuple[bytes, Hashable]:
        """Key of the row's score: all tokens, and the place of the first target."""
        return packed([*self.ids, self.targets[-1]]), self.read_from


def classify_rows(
    model: ServedModel,
    prompts: Sequence[str],
    config: GenerateConfig,
    check: Check,
    first: int = 0,
) -> tuple[list[PromptRow], dict[int, CoreError]]:
    """Return the prompts that can run as rows, and the others' errors by index, from ``first`` on.

    Raises `core.LabelError` for labels with equal tokens, and the errors of ``check``.
    """
    # The errors of texts, then those of their tokens, then those of their labels.
    tokenizer = Tokenising(model.tokenizer, check)
    errors = {i: prompt_error(model, prompt) for i, prompt in enumerate(prompts, first)}
    sound = [index for index, error in errors.items() if error is None]
    encoded = tokenizer.encode_batch([prompts[index - first] for index in sound])
    errors |= {i: ids_error(model, ids) for i, ids in zip(sound, encoded, strict=True)}

    pairs = zip(sound, encoded, strict=True)
    rows = [PromptRow(index, ids, None) for index, ids in pairs if errors[index] is None]
    if config.labels:
        texts = [prompts[row.index - first] for row in rows]
        rows = _with_questions(tokenizer, texts, rows, config)
        errors |= _labels_errors(model, rows)

    failed = {index: error for index, error in errors.items() if error is not None}
    return [row for row in rows if row.index not in failed], failed


def prompt_rows(
    model: ServedModel, prompts: Sequence[str], check: Check
) -> tuple[list[PromptRow], dict[int, CoreError]]:
    """Do `classify_rows` without labels; an error of ``check`` becomes every prompt's error."""
    try:
        return classify_rows(model, prompts, GenerateConfig(), check)
    except STOPPED as stopped:
        error = stopped.with_traceback(None)
        return [], dict.fromkeys(range(len(prompts)), error)


def _with_questions(
    tokenizer: ContinuingTokenizer,
    prompts: Sequence[str],
    rows: Sequence[PromptRow],
    config: GenerateConfig,
) -> list[PromptRow]:
    """Return the rows, each with its prompt's question about the labels."""
    labels = LabelTokens(tokenizer, config.labels, config.label_prefix)
    questions = labels.after(prompts, [row.ids for row in rows])
    return [
        PromptRow(row.index, row.ids, question)
        for row, question in zip(rows, questions, strict=True)
    ]


def _labels_errors(model: ServedModel, rows: Sequence[PromptRow]) -> dict[int, CoreError | None]:
    """Return the errors of rows whose labels cannot be scored; many rows share a trie."""
    questions = {row.index: row.question for row in rows if row.question}
    tries = {id(question.trie): question.trie for question in questions.values()}
    depths = {key: max(map(len, trie.prefixes)) for key, trie in tries.items()}
    tops = {key: max(map(max, trie.paths)) for key, trie in tries.items()}

    errors: dict[int, CoreError | None] = {}
    for index, question in questions.items():
        key = id(question.trie)
        if tops[key] >= model.info.vocab_size:
            errors[index] = _label_error(model, question.trie)
        else:
            errors[index] = _depth_error(model, question.anchor + depths[key])
    return errors


def _label_error(model: ServedModel, trie: LabelTrie) -> CoreError | None:
    """Return the error of the first label with a token without a row in the embedding."""
    tokenizer, size = model.tokenizer, model.info.vocab_size
    errors = (
        token_error(tokenizer, size, path, f"The label {label!r:.60}")
        for label, path in zip(trie.labels, trie.paths, strict=True)
    )
    return next(filter(None, errors), None)


def _depth_error(model: ServedModel, length: int) -> CoreError | None:
    """Return the error of a label that does not fit after its prompt; its last token is not fed."""
    limit = model.info.context_length
    if length <= limit:
        return None
    return PromptTooLongError(length, limit, "The prompt with its longest label", model.own_context)


def labels_alone(config: GenerateConfig) -> bool:
    """Return True if only labels are requested, so that no full LM head is needed."""
    wants_token = config.return_logits or config.return_logprobs or not config.labels
    return config.labels_only and not wants_token


def draws_alike(config: GenerateConfig) -> bool:
    """Return True if equal prompts have equal results: greedy, with a seed, or without a draw.

    With `labels_alone` no token is drawn, and temperature does not affect the probabilities.
    """
    return is_repeatable(config) or labels_alone(config)


def of_labels(result: ClassifyResult, trie: LabelTrie) -> ClassifyResult:
    """Return the part of a result that `labels_alone` reports, however it was computed.

    With a label of several tokens it is only the best label, because not all labels are read.
    """
    if len(trie.prefixes) > 1:
        return ClassifyResult(label=result.label, error=result.error)
    return ClassifyResult(
        label=result.label,
        probabilities=result.probabilities,
        margin=result.margin,
        error=result.error,
    )


def score_rows(
    model: ServedModel, prompts: Sequence[str], continuations: Sequence[str], check: Check
) -> tuple[list[ScoreRow], dict[int, CoreError]]:
    """Tokenise each continuation after its prompt; also return the errors of the unusable ones.

    An error of ``check`` becomes the error of each pair that is not tokenised yet.
    """
    rows: list[ScoreRow] = []
    errors: dict[int, CoreError] = {}
    for index, texts in enumerate(zip(prompts, continuations, strict=True)):
        row = _score_row(model, index, *texts, check)
        if isinstance(row, CoreError):
            errors[index] = row
        else:
            rows.append(row)
    return rows, errors


def score_token_rows(
    model: ServedModel, pairs: Sequence[tuple[list[int], list[int]]], check: Check
) -> tuple[list[ScoreRow], dict[int, CoreError]]:
    """Do `score_rows` for token ids, which are scored as they are."""
    rows: list[ScoreRow] = []
    errors: dict[int, CoreError] = {}
    for index, (prompt, continuation) in enumerate(pairs):
        row = _token_row(model, index, prompt, continuation, check)
        if isinstance(row, CoreError):
            errors[index] = row
        else:
            rows.append(row)
    return rows, errors


def _token_row(
    model: ServedModel, index: int, prompt: list[int], continuation: list[int], check: Check
) -> ScoreRow | CoreError:
    try:
        check()
    except STOPPED as stopped:
        return stopped.with_traceback(None)
    error = ids_error(model, prompt)
    if error is not None or not continuation:
        return error or RequestError("The continuation has no token. Give it at least one.")
    row = ScoreRow(index, [*prompt, *continuation[:-1]], len(prompt) - 1, continuation)
    return ids_error(model, row.ids) or ids_error(model, continuation[-1:]) or row


def _score_row(
    model: ServedModel, index: int, prompt: str, continuation: str, check: Check
) -> ScoreRow | CoreError:
    try:
        check()
        error = prompt_error(model, prompt) or prompt_error(model, continuation, "continuation")
        tokenizer = Tokenising(model.tokenizer, check)
        return error or _continued(model, index, prompt, continuation, tokenizer)
    except STOPPED as stopped:
        return stopped.with_traceback(None)


def _continued(
    model: ServedModel,
    index: int,
    prompt: str,
    continuation: str,
    tokenizer: ContinuingTokenizer,
) -> ScoreRow | CoreError:
    head, lead = tokenizer.encode(prompt), len(tokenizer.encode(""))  # BOS, or nothing
    continued = tokenizer.encode_continued(prompt, [continuation])
    # Like a label: a token that spans the prompt's end is scored with the continuation.
    start, [path] = label_paths(head, continued, lambda: [tokenizer.encode(continuation)[lead:]])
    if start == 0 or not path:
        return RequestError(
            f"The continuation {continuation!r:.60} adds no token to this prompt. "
            "Pass a longer prompt, or another continuation."
        )

    # The last token is scored and never fed.
    row = ScoreRow(index, [*head[:start], *path[:-1]], start - 1, path)
    return ids_error(model, row.ids) or ids_error(model, path[-1:]) or row
