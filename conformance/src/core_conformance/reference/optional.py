"""The reference model with every optional protocol."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from core import validate
from core.aio.calls import ThreadCalls
from core.errors import TrainingError
from core.extensions import AsyncStream
from core.kit.base import RequestClock
from core.kit.chat import RenderedPrompt
from core.kit.operations import (
    AttentionInspectorOperations,
    BatchStreamingOperations,
    ClassifyStreamingOperations,
    HiddenStatesOperations,
    ScoringOperations,
    SubmittingOperations,
    TokenizingOperations,
    TokenPromptsOperations,
)
from core.kit.support import (
    checked_layers,
    checked_pairs,
    checked_prompts,
    checked_stream,
    unicode_error,
)
from core.messages import checked_conversation
from core.options import GenerateConfig
from core.protocols import Capability, TextModel, TokenStream
from core.token_ids import TokenIds, token_pairs, token_prompts
from core.training import Examples, TrainConfig, TrainingRun, checked_examples, resolve_train
from core.types import (
    AttentionSnapshot,
    Choice,
    ClassifyResult,
    Conversation,
    GenerateMetrics,
    HiddenResult,
    MemoryReport,
    Score,
    Token,
    TokenSequence,
)
from core_conformance.reference import vocabulary
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import (
    MICRO_BATCH,
    Classifier,
    hidden,
    score,
    score_ids,
)
from core_conformance.reference.engine import GivenIds
from core_conformance.reference.files import MODEL_TYPE, read_adapter
from core_conformance.reference.language import HEAD_DIM, NUM_HEADS, NUM_LAYERS
from core_conformance.reference.meter import LEDGER, Meter
from core_conformance.reference.model import ReferenceCore
from core_conformance.reference.stream import SubmittedStream
from core_conformance.reference.training import Training, places_of
from core_conformance.reference.writing import write_adapter


class ReferenceModel(
    TokenizingOperations,
    SubmittingOperations,
    BatchStreamingOperations,
    ClassifyStreamingOperations,
    ScoringOperations,
    TokenPromptsOperations,
    HiddenStatesOperations,
    AttentionInspectorOperations,
    ReferenceCore,
):
    """See `core.extensions` for what every method promises."""

    submitted_class: type[SubmittedStream] = SubmittedStream
    training_class: type[Training] = Training
    calls_class: type[ThreadCalls] = ThreadCalls

    def encode(self, text: str) -> list[int]:
        """Return token ids as the model reads this prompt, with a leading BOS."""
        self.check_open()
        if error := unicode_error(text):
            raise error
        return vocabulary.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids, special tokens left out."""
        self.check_open()
        return vocabulary.decode(ids)

    def do_render_chat(self, messages: Conversation, request: GenerateConfig) -> RenderedPrompt:
        """Return the prompt that ``chat`` would continue."""
        return self.rendered(checked_conversation(messages), request)

    def do_submit(self, prompt: str, request: GenerateConfig) -> TokenStream:
        """Begin ``generate`` now, whether or not the stream is read."""
        stream = self.stream(checked_prompts("submit", [prompt])[0], request)
        return self.submitted_class(stream, self.record)

    def do_batch_stream(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> Iterator[tuple[int, Token]]:
        """Yield row and token as they are made; the first row that failed raises at the end."""
        return self._streamed(checked_prompts("batch_stream", prompts), request)

    def do_classify_iter(
        self, prompts: Iterable[str], request: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        """Run ``classify`` on a few prompts at a time."""
        return self._classified(iter(checked_stream("classify_iter", prompts)), request)

    def do_score(
        self, prompts: Sequence[str], continuations: Sequence[str], request: GenerateConfig
    ) -> list[Score]:
        """Score each continuation after its prompt; an error stays in its own row."""
        clock = RequestClock(request)
        heads, tails = checked_pairs("score", prompts, continuations)
        return [score(self.engine, clock, *pair) for pair in zip(heads, tails, strict=True)]

    def do_generate_tokens(
        self,
        prompts: TokenIds,
        request: GenerateConfig,
        attention_mask: TokenIds | None,
        num_samples: int,
    ) -> list[TokenSequence]:
        """Continue prompts of token ids, each ``num_samples`` times."""
        samples = validate.integer("num_samples", num_samples, 1)
        rows = token_prompts(prompts, attention_mask)
        texts = [GivenIds(row) for row in rows]
        batches = [
            self.batch_class(self.engine, texts, _of_sample(request, sample))
            for sample in range(samples)
        ]
        drawn = [batch.results() for batch in batches]
        meter = batches[0].meter
        meter.generated_tokens = sum(batch.meter.generated_tokens for batch in batches)
        self.record(meter.metrics())
        return [
            TokenSequence.of(row, results[place])
            for place, row in enumerate(rows)
            for results in drawn
        ]

    def do_stream_tokens(self, prompt: Sequence[int], request: GenerateConfig) -> TokenStream:
        """Run ``generate`` on token ids."""
        [row] = token_prompts([prompt])
        return self.stream(GivenIds(row), request)

    def do_score_tokens(
        self, prompts: TokenIds, continuations: TokenIds, request: GenerateConfig
    ) -> list[Score]:
        """Run ``score`` on token ids."""
        clock = RequestClock(request)
        pairs = token_pairs(prompts, continuations)
        return [score_ids(self.engine, clock, *pair) for pair in pairs]

    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        """Return the states at each prompt's last token; an error stays in its own row."""
        clock = RequestClock(request)
        numbers = checked_layers(layers, NUM_LAYERS)
        return [
            hidden(self.engine, clock, prompt, numbers)
            for prompt in checked_prompts("hidden_states", prompts)
        ]

    def do_inspect_attention(self, prompt: str, request: GenerateConfig) -> AttentionSnapshot:
        """Return the keys that one prefill of this prompt computes."""
        clock = RequestClock(request)
        ids = self.engine.prompt_ids(*checked_prompts("inspect_attention", [prompt]))
        clock.check()
        keys = self.engine.language.keys(ids)
        return AttentionSnapshot(NUM_LAYERS, NUM_HEADS, len(ids), HEAD_DIM, MODEL_TYPE, keys)

    def with_adapter(self, path: str | os.PathLike[str] | None, /) -> TextModel:
        """Return the same language with another adapter, or with none."""
        self.check_open()
        bias = {} if path is None else read_adapter(path)
        language = dataclasses.replace(self.engine.language, bias=bias)
        return type(self)(language, self.config, self.capabilities)

    def train(self, examples: Examples, config: TrainConfig | None = None, /) -> TrainingRun:
        """Learn a number for each token, one step whenever the run is read."""
        self.check_open()
        options, language = resolve_train(config), self.engine.language
        rows = checked_examples(examples)
        places = places_of(rows, options, language.context_length, self.rendered)
        return TrainingRun(
            self.training_class(language, places, options, self.take_bias).steps(), self
        )

    def save_adapter(self, directory: str | os.PathLike[str], /) -> None:
        """Write what was learned, as ``adapter_path`` reads it."""
        self.check_open()
        if not self.engine.language.bias:
            raise TrainingError("The model has no adapter to save. Train one first.")
        write_adapter(directory, self.engine.language.bias)

    def take_bias(self, bias: Mapping[int, float]) -> None:
        """Answer with these numbers from now on."""
        self.check_open()
        self.engine.language = dataclasses.replace(self.engine.language, bias=dict(bias))

    def memory(self) -> MemoryReport:
        """Return the memory that all reference models of this process hold."""
        self.check_open()
        return LEDGER.report()

    def reset_peak_memory(self) -> None:
        """Reset the peak."""
        self.check_open()
        LEDGER.reset_peak()

    def choices(self) -> Sequence[Choice]:
        """Return the choices made at load, with their reasons; a closed model knows them, too."""
        slots = str(self.engine.slots.count)
        return (
            Choice("device", "cpu", "plain Python runs nowhere else"),
            Choice("parallel_slots", slots, "as asked at load, or else the default"),
        )

    def declared(self) -> frozenset[Capability]:
        """Return the capabilities that its backend declares."""
        return self.capabilities

    async def call_async(
        self, operation: str, /, *arguments: object, **options: object
    ) -> tuple[object, GenerateMetrics]:
        """Return the result of the method of that name, and its metrics. A thread runs it."""
        return await self.calls_class(self).call_async(operation, *arguments, **options)

    def stream_async(
        self, operation: str, /, *arguments: object, **options: object
    ) -> AsyncStream[Any]:
        """Return a stream of the items of the method of that name. A thread reads it."""
        return self.calls_class(self).stream_async(operation, *arguments, **options)

    def _streamed(self, prompts: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        batch: Batch = self.batch_class(self.engine, prompts, config)
        try:
            yield from batch.tokens()
        finally:
            self.record(batch.meter.metrics())
        if batch.errors:
            raise batch.errors[min(batch.errors)]

    def _classified(
        self, prompts: Iterator[str], config: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        meter = Meter()
        classifier: Classifier = self.classifier_class(self.engine, config, meter)
        while rows := checked_prompts("classify_iter", list(islice(prompts, MICRO_BATCH))):
            self.check_open()
            results = classifier.results(rows)
            self.record(meter.metrics())
            yield from results


def _of_sample(config: GenerateConfig, sample: int) -> GenerateConfig:
    """Return the first sample draws what ``generate`` draws, the others with other seeds."""
    if config.seed is None:
        return config
    return dataclasses.replace(config, seed=config.seed + 1_000_003 * sample)
