"""Rows of one call: each becomes one or several rows of tokens, whose outputs are its result."""

from __future__ import annotations

import logging
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from core.errors import CoreError, LabelError, OutOfMemoryError, PromptTooLongError, RequestError
from core.kit.base import RequestClock
from core.kit.labels import label_sentences, sentence_result
from core.options import GenerateConfig
from core.types import ClassifyResult, HiddenResult
from core_openvino.encoder.loaded import SCALE, LoadedEncoder
from core_openvino.encoder.session import Floats, unit
from core_openvino.encoder.tokenizer import Encoded
from core_openvino.library import lacks_memory, reason_of
from core_runtime.log import log_batch
from core_runtime.owner import OwnerThread
from core_runtime.request import own_error
from core_runtime.rows import PromptRow, ids_error
from core_runtime.sequences.sampling import check_state

A = TypeVar("A")
_LOG = logging.getLogger("core_openvino")


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes of one call, on the model's thread. The clock is polled between two."""

    loaded: LoadedEncoder
    owner: OwnerThread
    clock: RequestClock

    def outputs(self, rows: Sequence[Encoded]) -> Iterator[tuple[list[int], Floats | Exception]]:
        """Yield the outputs of some rows at a time, by index, or the error that ended them.

        A request that stops ends all rows that are left.
        """
        left = set(range(len(rows)))
        widths = [self.loaded.session.padded(len(row.ids)) for row in rows]
        for batch in _passes(widths, self.loaded.n_batch):
            since = time.monotonic()
            some = [rows[index] for index in batch]
            try:
                self.clock.check()
                result: Floats | Exception = self.owner.run(
                    partial(self.loaded.session.compute, some), self.clock.check
                )
            except RequestError as error:
                yield sorted(left), error
                return
            except (MemoryError, RuntimeError) as error:
                result = _failure(error)
            left.difference_update(batch)
            log_batch(_LOG, len(some), partial(sum, map(len, [row.ids for row in some])), since)
            yield batch, result


def _failure(error: Exception) -> Exception:
    """Return the error of a pass's rows; OpenVINO also has RuntimeError for too little memory."""
    if not lacks_memory(error):
        return error
    return OutOfMemoryError(
        f"Out of memory for a pass ({reason_of(error)}). Reduce n_batch, or close other models."
    )


def _passes(widths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield the rows of each pass, which are equally wide; the widest first."""
    for width in sorted(set(widths), reverse=True):
        rows = [row for row, own in enumerate(widths) if own == width]
        for start in range(0, len(rows), size := max(1, budget // width)):
            yield rows[start : start + size]


class EncodedRows(Generic[A]):
    """The `core_runtime.equal_rows.RowComputation` of one call.

    ``parts`` returns the rows of tokens of a prompt, ``result`` its result from their outputs.
    ``prepare`` runs before the first row; its `core.RequestError`, or the failure of its pass, is
    every row's.
    """

    reused = 0

    def __init__(
        self,
        passes: Passes,
        parts: Callable[[PromptRow], Sequence[Encoded]],
        result: Callable[[Floats], A],
        failed: Callable[[Exception], A],
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._passes, self._parts, self._result = passes, parts, result
        self._failed, self._prepare = failed, prepare

    def results(self, blocks: Iterable[Sequence[PromptRow]]) -> Iterator[tuple[PromptRow, A]]:
        """Yield each row's result, the longest rows of a block first."""
        for rows in blocks:
            try:
                self._prepare()
            except (RequestError, RuntimeError) as error:
                yield from ((row, self._failed(own_error(error))) for row in rows)
            else:
                yield from self._block(rows)

    def _block(self, rows: Sequence[PromptRow]) -> Iterator[tuple[PromptRow, A]]:
        parts: list[Encoded] = []
        owners: list[tuple[int, int]] = []  # of each part: its row, its place in it
        outputs: dict[int, list[Floats | Exception | None]] = {}
        for index, row in enumerate(rows):
            try:
                own = self._parts(row)
            except RequestError as error:
                yield row, self._failed(error)
                continue
            owners += [(index, place) for place in range(len(own))]
            parts += own
            outputs[index] = [None] * len(own)

        for batch, result in self._passes.outputs(parts):
            for place, part in enumerate(batch):
                index, at = owners[part]
                outputs[index][at] = result if isinstance(result, Exception) else result[place]
                if all(output is not None for output in outputs[index]):
                    yield rows[index], self._joined(outputs.pop(index))

    def _joined(self, outputs: Sequence[Floats | Exception | None]) -> A:
        arrays: list[Floats] = []
        for output in outputs:
            if isinstance(output, Exception):
                return self._failed(own_error(output))
            if output is not None:
                arrays.append(output)
        try:
            return self._result(np.stack(arrays))
        except CoreError as error:
            return self._failed(error.with_traceback(None))


class LabelSentences:
    """The sentences of a call's labels: tokenised once, and embedded once.

    Raises `core.LabelError` for a sentence that is too long, or has the tokens of another one.
    """

    def __init__(self, passes: Passes, request: GenerateConfig) -> None:
        self._passes, self._request = passes, request
        self._ids: list[list[int]] = []
        self._vectors: Floats | None = None

    def tokenise(self) -> None:
        """Tokenise the sentences, at the first call."""
        if self._ids:
            return
        loaded, labels = self._passes.loaded, self._request.labels
        sentences = label_sentences(labels, self._request.label_sentence)
        ids = loaded.tokenizer.whole(sentences)  # a sentence that is cut may lose its label
        owners: dict[tuple[int, ...], str] = {}
        for label, tokens in zip(labels, ids, strict=True):
            if error := ids_error(loaded, tokens):
                raise LabelError(f"The sentence of the label {label!r:.60} cannot be read: {error}")
            other = owners.setdefault(tuple(tokens), label)
            if other != label:
                raise LabelError(
                    f"The sentences of the labels {other!r} and {label!r} have the same tokens in "
                    "this model and cannot be distinguished. Remove one of them."
                )
        self._ids = ids

    def embed(self) -> None:
        """Embed the sentences, at the first call. Raises the error of a pass."""
        if self._vectors is not None:
            return
        self.tokenise()
        vectors: dict[int, Floats] = {}
        for batch, result in self._passes.outputs([Encoded(ids) for ids in self._ids]):
            if isinstance(result, Exception):
                raise result
            vectors.update(zip(batch, result, strict=True))
        self._vectors = unit(np.stack([vectors[index] for index in sorted(vectors)]))

    def pairs(self, row: PromptRow) -> list[Encoded]:
        """Return a text with each sentence. Raises `core.PromptTooLongError`."""
        loaded = self._passes.loaded
        pairs = [loaded.tokenizer.pair(row.ids, ids) for ids in self._ids]
        longest, limit = max(len(pair.ids) for pair in pairs), loaded.info.context_length
        if longest > limit:
            what = "The prompt with its longest label sentence"
            raise PromptTooLongError(longest, limit, what, loaded.own_context)
        return pairs

    def compared(self, outputs: Floats) -> ClassifyResult:
        """Return the result of a text's embedding: scaled cosines to the sentences."""
        assert self._vectors is not None
        cosines = self._vectors @ unit(outputs[0])
        return sentence_result(self._request.labels, (SCALE * cosines.astype(np.float64)).tolist())

    def scored(self, outputs: Floats) -> ClassifyResult:
        """Return the result of the logits of a text with each sentence."""
        head = self._passes.loaded.config.head
        assert head is not None
        scores = outputs[:, head.score].astype(np.float64)
        return sentence_result(self._request.labels, scores.tolist())


def classified(passes: Passes, request: GenerateConfig) -> EncodedRows[ClassifyResult]:
    """Return the computation of one call of ``classify``."""
    sentences = LabelSentences(passes, request)
    if passes.loaded.config.head is not None:
        return EncodedRows(
            passes, sentences.pairs, sentences.scored, _failed_label, sentences.tokenise
        )
    return EncodedRows(passes, _alone, sentences.compared, _failed_label, sentences.embed)


def embedded(passes: Passes, layers: tuple[int, ...]) -> EncodedRows[HiddenResult]:
    """Return the computation of one call of ``hidden_states``."""

    def result(outputs: Floats) -> HiddenResult:
        check_state(outputs)
        return HiddenResult(layers, array("f", outputs[0].tobytes()))

    return EncodedRows(passes, _alone, result, _failed_state)


def _alone(row: PromptRow) -> list[Encoded]:
    return [Encoded(row.ids)]


def _failed_label(error: Exception) -> ClassifyResult:
    return ClassifyResult(error=error)


def _failed_state(error: Exception) -> HiddenResult:
    return HiddenResult(error=error)
