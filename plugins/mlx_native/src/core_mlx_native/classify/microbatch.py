"""The values that `classify` reads from a micro-batch: each row's next token and labels.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import mlx.core as mx

from core.errors import CoreError
from core.kit.base import Check
from core.kit.labels import LabelScores, LabelTrie, with_scores
from core.options import GenerateConfig
from core.types import ClassifyResult, Token
from core_mlx_native.classify.labels import (
    DeviceLabels,
    Head,
    HostLabels,
    ask_labels,
    label_head,
)
from core_mlx_native.classify.scheduler import OnDevice
from core_mlx_native.classify.search import find_labels
from core_mlx_native.failures import not_finite
from core_mlx_native.loaded import LoadedModel
from core_mlx_native.network.prefill import Prefill
from core_mlx_native.sampling.sampling import logprobs as logprobs_of
from core_mlx_native.sampling.sampling import sample
from core_mlx_native.to_python import bools, float_arrays, floats, ints
from core_runtime.label_search import LabelSearch
from core_runtime.rows import PromptRow, labels_alone, of_labels
from core_runtime.text.label_tokens import LabelQuestion


@dataclass(frozen=True, slots=True)
class HostResult:
    """The values of a micro-batch on the host.

    ``tokens`` is None with ``labels_only``, and ``labels`` is empty without labels; the rest is
    None unless requested. ``searched``: the rows for which only the best label was read.
    """

    broken: Sequence[bool]  # per row, whether its values are NaN or infinite
    tokens: Sequence[int] | None
    logprobs: Sequence[float] | None  # of the tokens
    logits: Sequence[array[float]] | None
    labels: Sequence[HostLabels]
    searched: Mapping[int, LabelSearch]


@dataclass(frozen=True, slots=True)
class DeviceResult(OnDevice[HostResult]):
    """The values of a micro-batch, queued on the device.

    Every array is queued here; one queued later would wait for the next micro-batch.
    """

    broken: mx.array  # [B]
    tokens: mx.array | None = None  # [B]
    logprobs: mx.array | None = None  # [B]
    logits: mx.array | None = None  # [B, V]
    labels: Sequence[DeviceLabels] = ()
    searched: Mapping[int, LabelSearch] = field(default_factory=dict)

    def queue(self) -> DeviceResult:
        """Start the computation of every value on the device."""
        values = [labels.values for labels in self.labels]
        mx.async_eval(self.broken, self.tokens, self.logprobs, self.logits, values)
        return self

    def read(self) -> HostResult:
        """See `OnDevice`."""
        return HostResult(
            bools(self.broken),
            None if self.tokens is None else ints(self.tokens),
            None if self.logprobs is None else floats(self.logprobs),
            None if self.logits is None else float_arrays(self.logits),
            [labels.read() for labels in self.labels],
            self.searched,
        )


@dataclass(frozen=True, slots=True)
class ClassifyTask:
    """The `scheduler.ReadTask` of one call of `classify`, with the options of the call."""

    model: LoadedModel
    config: GenerateConfig

    @property
    def inputs(self) -> Sequence[int]:
        """No layer inputs."""
        return ()

    @property
    def depth(self) -> None:
        """None: all layers run."""
        return None

    @property
    def row_tokens(self) -> int:
        """The weight of one row's logits in tokens if they are computed; else 1."""
        return 1 if self._labels_only else self.model.row_tokens

    def positions(self, rows: Sequence[PromptRow]) -> list[tuple[int, ...]]:
        """Return each row's last token and, if labels begin earlier, the token before them."""
        if _read_at_ends(rows):
            return [(len(row.ids) - 1,) for row in rows]
        return [(len(row.ids) - 1, row.anchor - 1) for row in rows]

    def keeps_cache(self, rows: Sequence[PromptRow]) -> bool:
        """Return True if some label has several tokens, which need the keys and values again."""
        return any(row.question and len(row.question.trie.prefixes) > 1 for row in rows)

    def queue(
        self, rows: Sequence[PromptRow], parts: Sequence[Prefill], check: Check
    ) -> DeviceResult:
        """Queue the LM head, the draw of a token per row, and the values of its labels."""
        model, config = self.model, self.config
        questions = [row.question for row in rows]
        if self._labels_only:
            broken = mx.concatenate([_is_broken(part.hidden) for part in parts])
            searched = self._searched(questions, parts, check)
            others = [None if row in searched else one for row, one in enumerate(questions)]
            labels = _labels(model, others, parts, label_head, None)
            return DeviceResult(broken, labels=labels, searched=searched).queue()

        # The token comes first: on a CPU, what follows reads the logits on the host.
        prompts = [row.ids for row in rows]
        logits = model.decoder.logits(_at_ends(parts, prompts))  # [B, V]
        tokens = sample(logits, prompts, config)  # [B]
        mx.async_eval(tokens)

        # Labels that begin where the prompts end are read from the same logits.
        known = logits if _read_at_ends(rows) else None
        total = model.decoder.ops.log_total(logits) if config.return_logprobs else None
        return DeviceResult(
            model.decoder.ops.broken(logits) if total is None else mx.isnan(total),
            tokens,
            None if total is None else logprobs_of(logits, tokens, total),
            logits if config.return_logits else None,
            _labels(model, questions, parts, None, known),
        ).queue()

    def results(self, values: HostResult) -> list[ClassifyResult]:
        """Return each row's result. Needs no device, and may run on any thread."""
        results = self._tokens(values)

        # Labels add their scores to the tokens; with labels_only the tokens are dropped.
        for labels in values.labels:
            for row, scores in labels.scores():
                results[row] = self._scored(results[row], scores, labels.trie)
        for row, search in values.searched.items():
            if search.broken:  # it has no label then
                results[row] = self.failed(not_finite())
            else:
                results[row] = ClassifyResult(label=search.label)

        # A row with invalid logits gets an error instead of a result.
        rows = zip(values.broken, results, strict=True)
        return [self.failed(not_finite()) if broken else result for broken, result in rows]

    def failed(self, error: CoreError) -> ClassifyResult:
        """See `scheduler.ReadTask`."""
        return ClassifyResult(error=error)

    def _searched(
        self,
        questions: Sequence[LabelQuestion | None],
        parts: Sequence[Prefill],
        check: Check,
    ) -> dict[int, LabelSearch]:
        """Search the rows whose labels have several tokens, one lane after another."""
        model = self.model
        long = [one if one and len(one.trie.prefixes) > 1 else None for one in questions]
        searches: dict[int, LabelSearch] = {}
        if not (model.fast.label_search and any(long)):
            return searches
        begin = 0
        for part in parts:
            end = begin + len(part.hidden)
            some = find_labels(model.decoder, part, long[begin:end], model.round_tokens, check)
            searches |= {begin + row: search for row, search in some.items()}
            begin = end
        return searches

    @property
    def _labels_only(self) -> bool:
        """True if the LM head runs only for the labels' tokens."""
        return self.model.fast.label_rows and labels_alone(self.config)

    def _scored(
        self, result: ClassifyResult, scores: LabelScores | CoreError, trie: LabelTrie
    ) -> ClassifyResult:
        """Return a row's result with its label scores, or its error."""
        if isinstance(scores, CoreError):
            return self.failed(not_finite())
        scored = with_scores(result, scores)
        return of_labels(scored, trie) if labels_alone(self.config) else scored

    def _tokens(self, values: HostResult) -> list[ClassifyResult]:
        rows = len(values.broken)
        if values.tokens is None:
            return [ClassifyResult() for _ in range(rows)]

        text, nothing = self.model.tokenizer.token_text, [None] * rows
        every = zip(
            values.tokens, values.logprobs or nothing, values.logits or nothing, strict=True
        )
        return [
            ClassifyResult(token=Token(token, text(token), logprob), logits=logits)
            for token, logprob, logits in every
        ]


def _labels(
    model: LoadedModel,
    questions: Sequence[LabelQuestion | None],
    parts: Sequence[Prefill],
    head: Head | None,
    logits: mx.array | None,
) -> list[DeviceLabels]:
    """Queue the label values of all lanes; without labels the list is empty."""
    device_labels: list[DeviceLabels] = []
    begin = 0
    for part in parts if any(questions) else ():
        end = begin + len(part.hidden)
        known = logits if logits is None else logits[begin:end]
        device_labels += ask_labels(model.decoder, part, questions[begin:end], head, known, begin)
        begin = end
    return device_labels


def _at_ends(parts: Sequence[Prefill], prompts: Sequence[Sequence[int]]) -> mx.array:
    """Return the hidden state at each row's end: [B, H]."""
    ends = iter([len(prompt) - 1 for prompt in prompts])
    return mx.concatenate([part.hidden_at(list(islice(ends, len(part.hidden)))) for part in parts])


def _is_broken(hidden: mx.array) -> mx.array:
    """Return for each row of [B, R, H] whether NaN or infinity is among its values: [B]."""
    return ~mx.isfinite(hidden.reshape(len(hidden), -1)).all(axis=-1)


def _read_at_ends(rows: Sequence[PromptRow]) -> bool:
    """Return True if all labels begin where their prompts end, so they share the logits."""
    return all(row.anchor == len(row.ids) for row in rows)
