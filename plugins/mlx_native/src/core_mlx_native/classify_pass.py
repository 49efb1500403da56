"""One micro-batch of ``classify``: started, so that a GPU works on it, and read later.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import mlx.core as mx

from core.labels import with_scores
from core.options import GenerateConfig
from core.serving.reading import Row, labels_alone, of_labels
from core.types import ClassifyResult, Token
from core_mlx_native.decoder import Between, nothing
from core_mlx_native.failures import not_a_number
from core_mlx_native.host import bools, float_arrays, floats, ints
from core_mlx_native.label_reader import (
    Answered,
    Asked,
    Head,
    ask_labels,
    label_head,
    label_scores,
)
from core_mlx_native.loader import LoadedModel
from core_mlx_native.prefill import Prefill
from core_mlx_native.reading import Prefix
from core_mlx_native.sampling import logprobs as logprobs_of
from core_mlx_native.sampling import quick_log_total, sample
from core_mlx_native.side_by_side import read_in_lanes


@dataclass(frozen=True, slots=True)
class Answers:
    """What came of a micro-batch. ``tokens`` is None where only labels count, and ``labels`` empty
    without; the rest is None where it is not asked for.
    """

    rows: Sequence[Row]
    broken: Sequence[bool]  # of each row, whether it has a NaN
    tokens: Sequence[int] | None
    logprobs: Sequence[float] | None  # of the tokens
    logits: Sequence[array[float]] | None
    labels: Sequence[Answered]


@dataclass(frozen=True, slots=True)
class Started:
    """The same on its way: all that the device computes for it is queued.

    What were queued later would wait for the next micro-batch.
    """

    rows: Sequence[Row]
    broken: mx.array  # [B]
    tokens: mx.array | None = None  # [B]
    logprobs: mx.array | None = None  # [B]
    logits: mx.array | None = None  # [B, V]
    labels: Sequence[Asked] = ()

    def queue(self) -> Started:
        """Let the device begin."""
        values = [asked.values for asked in self.labels]
        mx.async_eval(self.broken, self.tokens, self.logprobs, self.logits, values)
        return self

    def read(self) -> Answers:
        """Wait for it."""
        return Answers(
            self.rows,
            bools(self.broken),
            None if self.tokens is None else ints(self.tokens),
            None if self.logprobs is None else floats(self.logprobs),
            None if self.logits is None else float_arrays(self.logits),
            [asked.read() for asked in self.labels],
        )


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
        broken = mx.concatenate([_has_nan(part.hidden) for part in parts])
        return Started(rows, broken, labels=_labels(model, rows, parts, label_head, None)).queue()
    logits = model.decoder.logits(_at_ends(parts, prompts))  # [B, V]
    tokens = sample(logits, prompts, config)  # [B]
    mx.async_eval(tokens)  # on a CPU, what follows reads the logits on the host
    return Started(
        rows,
        _has_nan(logits),
        tokens,
        logprobs_of(logits, tokens, quick_log_total(logits)) if config.return_logprobs else None,
        logits if config.return_logits else None,
        _labels(model, rows, parts, None, logits if _read_at_ends(rows) else None),
    ).queue()


def results(
    answers: Answers, config: GenerateConfig, token_text: Callable[[int], str]
) -> list[ClassifyResult]:
    """Each row's result. Needs no device, and may run on any thread."""
    found = _tokens(answers, token_text)
    if answers.labels:
        found = [
            with_scores(*pair) for pair in zip(found, label_scores(answers.labels), strict=True)
        ]
    if labels_alone(config):
        found = [of_labels(result) for result in found]
    return [
        ClassifyResult(error=not_a_number()) if bad else result
        for bad, result in zip(answers.broken, found, strict=True)
    ]


def _labels(
    model: LoadedModel,
    rows: Sequence[Row],
    parts: Sequence[Prefill],
    head: Head | None,
    logits: mx.array | None,
) -> list[Asked]:
    """The label questions of all lanes; none without labels."""
    questions = [row.question for row in rows if row.question is not None]
    asked: list[Asked] = []
    begin = 0
    for part in parts if questions else ():
        end = begin + len(part.hidden)
        known = logits if logits is None else logits[begin:end]
        asked += ask_labels(model.decoder, part, questions[begin:end], head, known, begin)
        begin = end
    return asked


def _at_ends(parts: Sequence[Prefill], prompts: Sequence[Sequence[int]]) -> mx.array:
    """The hidden state at each row's end: [B, H]."""
    ends = iter([len(prompt) - 1 for prompt in prompts])
    return mx.concatenate([part.hidden_at(list(islice(ends, len(part.hidden)))) for part in parts])


def _has_nan(values: mx.array) -> mx.array:
    """Of each row: [B]."""
    return mx.isnan(values.reshape(len(values), -1)).any(axis=-1)


def _tokens(answers: Answers, token_text: Callable[[int], str]) -> list[ClassifyResult]:
    if answers.tokens is None:
        return [ClassifyResult() for _ in answers.rows]
    nothing_asked = [None] * len(answers.rows)
    every = zip(
        answers.tokens,
        answers.logprobs or nothing_asked,
        answers.logits or nothing_asked,
        strict=True,
    )
    return [
        ClassifyResult(token=Token(token, token_text(token), logprob), logits=logits)
        for token, logprob, logits in every
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
