"""One micro-batch of ``classify``: started, so that a GPU works on it, and finished later.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import mlx.core as mx
import numpy as np

from core.labels import LabelScores, with_scores
from core.options import GenerateConfig
from core.serving.reading import Row, labels_alone, of_labels
from core.types import ClassifyResult, Token
from core_mlx_native import host_math
from core_mlx_native.decoder import Between, nothing
from core_mlx_native.failures import not_a_number
from core_mlx_native.host import float_array, floats, ints, on_cpu
from core_mlx_native.label_reader import label_head, read_labels
from core_mlx_native.loader import LoadedModel
from core_mlx_native.prefill import Prefill
from core_mlx_native.reading import Prefix
from core_mlx_native.sampling import logprobs as logprobs_of
from core_mlx_native.sampling import sample
from core_mlx_native.side_by_side import read_in_lanes


@dataclass(frozen=True, slots=True)
class Started:
    """A micro-batch on its way: ``parts``, which hold its rows in order.

    ``logits`` [B, V] at each row's end, unless only labels count.
    """

    rows: Sequence[Row]
    parts: Sequence[Prefill]
    logits: mx.array | None
    tokens: mx.array | None  # [B]

    def slices(self) -> Iterator[tuple[Prefill, slice]]:
        """Each part, and where its rows stand."""
        start = 0
        for part in self.parts:
            yield part, slice(start, start + len(part.hidden))
            start += len(part.hidden)


def start(
    model: LoadedModel,
    rows: Sequence[Row],
    prefix: Prefix,
    config: GenerateConfig,
    between: Between = nothing,
) -> Started:
    """Queue the forward pass, or run it in lanes; ``between`` two layers may raise."""
    prompts = [row.ids for row in rows]
    # Labels of several tokens alone need the keys and values again.
    keep = any(row.question and len(row.question.trie.prefixes) > 1 for row in rows)
    parts = read_in_lanes(model, prompts, _positions(rows), prefix, keep, between)
    if labels_only(model, config):
        mx.async_eval([part.hidden for part in parts])
        return Started(rows, parts, None, None)
    logits = model.decoder.logits(_at_ends(parts, prompts))  # [B, V]
    tokens = sample(logits, prompts, config)  # [B]
    mx.async_eval(logits, tokens)
    return Started(rows, parts, logits, tokens)


def finish(model: LoadedModel, started: Started, config: GenerateConfig) -> list[ClassifyResult]:
    """Wait for the pass, and read it."""
    results = _tokens(model, started, config)
    if any(row.question is not None for row in started.rows):
        scores = _scores(model, started, config)
        results = [with_scores(*pair) for pair in zip(results, scores, strict=True)]
    if labels_alone(config):
        results = [of_labels(result) for result in results]
    return [
        ClassifyResult(error=not_a_number()) if bad else result
        for bad, result in zip(_broken(started), results, strict=True)
    ]


def _scores(model: LoadedModel, started: Started, config: GenerateConfig) -> list[LabelScores]:
    head = label_head if labels_only(model, config) else None
    logits = started.logits if _read_at_ends(started.rows) else None
    found: list[LabelScores] = []
    for part, rows in started.slices():
        questions = [row.question for row in started.rows[rows] if row.question is not None]
        known = logits if logits is None else logits[rows]
        found += read_labels(model.decoder, part, questions, head, known)
    return found


def _at_ends(parts: Sequence[Prefill], prompts: Sequence[Sequence[int]]) -> mx.array:
    """The hidden state at each row's end: [B, H]."""
    ends = iter([len(prompt) - 1 for prompt in prompts])
    return mx.concatenate([part.hidden_at(list(islice(ends, len(part.hidden)))) for part in parts])


def _tokens(model: LoadedModel, started: Started, config: GenerateConfig) -> list[ClassifyResult]:
    logits, tokens = started.logits, started.tokens
    if logits is None or tokens is None:
        return [ClassifyResult() for _ in started.rows]
    ids = ints(tokens)
    found = _logprobs(logits, tokens) if config.return_logprobs else [None] * len(ids)
    text = model.tokenizer.token_text
    return [
        ClassifyResult(
            token=Token(token, text(token), logprob),
            logits=float_array(logits[row]) if config.return_logits else None,
        )
        for row, (token, logprob) in enumerate(zip(ids, found, strict=True))
    ]


def labels_only(model: LoadedModel, config: GenerateConfig) -> bool:
    """Whether the head runs for the tokens of the labels alone."""
    return model.fast.label_rows and labels_alone(config)


def _positions(rows: Sequence[Row]) -> list[tuple[int, ...]]:
    """Where each row is read: at its end, and, if that is elsewhere, where its labels begin."""
    if _read_at_ends(rows):
        return [(len(row.ids) - 1,) for row in rows]
    return [(len(row.ids) - 1, _anchor(row) - 1) for row in rows]


def _read_at_ends(rows: Sequence[Row]) -> bool:
    """Whether the labels begin where the prompts end: the same logits tell both."""
    return all(_anchor(row) == len(row.ids) for row in rows)


def _anchor(row: Row) -> int:
    return row.question.anchor if row.question else len(row.ids)


def _logprobs(logits: mx.array, tokens: mx.array) -> list[float]:
    if not on_cpu():
        return floats(logprobs_of(logits, tokens))
    chosen = mx.take_along_axis(logits, tokens[:, None], axis=-1)[:, 0]
    return [float(value) for value in np.asarray(chosen) - host_math.log_total(logits)]


def _broken(started: Started) -> list[bool]:
    """Whether a row has a NaN."""
    values = [part.hidden for part in started.parts]
    if started.logits is not None:
        values = [started.logits]
    nan = [mx.isnan(each.reshape(len(each), -1)).any(axis=-1) for each in values]
    return [bool(bad) for bad in ints(mx.concatenate(nan))]
