"""`FakeModel`: every operation of a loaded model, with the answers that a test sets."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from core import validate
from core.errors import GenerationCancelled, RequestError
from core.kit.base import RequestClock, TextModelBase
from core.kit.chat import RenderedPrompt
from core.kit.labels import label_texts, with_scores
from core.kit.operations import (
    BatchStreamingOperations,
    ClassifyStreamingOperations,
    HiddenStatesOperations,
    SubmittingOperations,
    TokenizingOperations,
)
from core.kit.support import (
    checked_layers,
    checked_prompts,
    checked_stream,
    refuse_options,
)
from core.messages import checked_conversation
from core.options import GenerateConfig
from core.protocols import Capability, TokenStream
from core.testing import language
from core.testing.language import FakeEngine, FakeGeneration, FakeStream, FinishedRow
from core.testing.script import Answers, Errors, Labels, Script
from core.types import (
    BatchResult,
    ClassifyResult,
    Conversation,
    GenerateMetrics,
    HiddenResult,
    Message,
    ModelInfo,
    Token,
)

NAME = "fake"
CONTEXT_LENGTH = 4096
_ALWAYS = frozenset(
    {
        *(Capability.GENERATE, Capability.CHAT, Capability.CHAT_TEMPLATE, Capability.CLASSIFY),
        *(Capability.BATCH_GENERATE, Capability.LOGPROBS, Capability.SEED, Capability.PARALLEL),
        *(Capability.ROTATE, Capability.TOKENIZING, Capability.SUBMITTING),
        *(Capability.BATCH_STREAMING, Capability.CLASSIFY_STREAMING, Capability.HIDDEN_STATES),
    }
)
_HONOURED = frozenset({"temperature", "top_k", "top_p", "min_p", "repeat_penalty"})


@dataclass(frozen=True, slots=True)
class Call:
    """A request that reached the model with valid options. ``chat`` has messages only."""

    operation: str
    prompts: tuple[str, ...]
    messages: tuple[Message, ...]
    config: GenerateConfig


def capabilities(labels: Labels | None) -> frozenset[Capability]:
    """Return the capabilities of a fake: labels only if the test sets them."""
    return _ALWAYS if labels is None else _ALWAYS | {Capability.LABELS}


class FakeModel(
    TokenizingOperations,
    SubmittingOperations,
    BatchStreamingOperations,
    ClassifyStreamingOperations,
    HiddenStatesOperations,
    TextModelBase,
):
    """A `core.TextModel` without a model, whose answers a test sets by prompt.

    ``answers``: one text for all prompts; a mapping from prompt to text; a sequence, of which each
    generation takes the next; or a function of the prompt. ``labels``: a function of prompt and
    labels, or a mapping from prompt, that gives a label, or the probability of each label.
    ``errors``: the error of a prompt, as a mapping or a function; a `core.RequestError` is its
    row's error, as in any model. In a conversation, the prompt is the last message.

    Every character is a token. ``calls`` lists the requests, in order. A prompt without an answer
    raises AssertionError.
    """

    def __init__(
        self,
        answers: Answers = "",
        *,
        labels: Labels | None = None,
        errors: Errors | None = None,
        context_length: int = CONTEXT_LENGTH,
        context_overflow: Literal["stop", "rotate"] = "stop",
        name: str = NAME,
    ) -> None:
        super().__init__(name)
        self.calls: list[Call] = []
        self.capabilities = capabilities(labels)
        self._engine = FakeEngine(
            Script(answers, labels, errors),
            validate.integer("context_length", context_length, 1),
            context_overflow == "rotate",
            self.check_open,
        )

    @property
    def model_type(self) -> str:
        """Always "fake"."""
        return NAME

    @property
    def info(self) -> ModelInfo:
        """Facts about the model; its logits are exact."""
        return ModelInfo(
            architecture=NAME,
            vocab_size=language.VOCAB_SIZE,
            num_layers=language.LAYERS,
            hidden_size=language.STATE_SIZE,
            quant_bits=0,
            quant_group=0,
            context_length=self._engine.context_length,
            logit_tolerance=0.0,
        )

    def refuse_unsupported(self, request: GenerateConfig, capability: Capability) -> None:
        """Raise for options that the fake does not support."""
        refuse_options(request, capability, self._backend, self.capabilities, honours=_HONOURED)

    def do_generate(self, prompt: str, request: GenerateConfig) -> TokenStream:
        """Return the answer to a prompt, character by character."""
        [text] = self._recorded("generate", [prompt], request)
        return self._stream(text, request)

    def do_chat(self, messages: Conversation, request: GenerateConfig) -> TokenStream:
        """Return the answer to the last message."""
        turns = checked_conversation(messages)
        prompt = language.render_chat(turns, request)
        self.calls.append(Call("chat", (), tuple(turns), request))
        return self._stream(prompt, request)

    def do_submit(self, prompt: str, request: GenerateConfig) -> TokenStream:
        """Run ``generate`` to its end; its tokens wait in the stream."""
        [text] = self._recorded("submit", [prompt], request)
        row = FinishedRow(self._row(text, request, RequestClock(request)))
        return FakeStream(lambda: row, self.record, row.metrics())

    def do_batch_generate(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> list[BatchResult]:
        """Return the answer to each prompt."""
        texts, clock = self._recorded("batch_generate", prompts, request), RequestClock(request)
        rows = [self._row(text, request, clock) for text in texts]
        results = [_result(row) for row in rows]
        self.record(_metrics(rows, clock))
        return results

    def do_batch_stream(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> Iterator[tuple[int, Token]]:
        """Return pairs of row and token, row by row; the first failed row's error ends it."""
        return self._pairs(self._recorded("batch_stream", prompts, request), request)

    def do_classify(self, prompts: Sequence[str], request: GenerateConfig) -> list[ClassifyResult]:
        """Return the first token of each answer, without using the answer up, and label scores."""
        return list(self._classified(self._recorded("classify", prompts, request), request))

    def do_classify_iter(
        self, prompts: Iterable[str], request: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        """Run ``classify``, prompt by prompt; each is a separate call in ``calls``."""
        stream = enumerate(checked_stream("classify_iter", prompts))
        texts = (
            text
            for index, prompt in stream
            for text in self._recorded("classify_iter", [prompt], request, index)
        )
        return self._classified(texts, request)

    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        """Return states that are similar for prompts with common words."""
        numbers = checked_layers(layers, language.LAYERS)
        texts, clock = self._recorded("hidden_states", prompts, request), RequestClock(request)
        results: list[HiddenResult] = []
        tokens = 0
        for text in texts:
            try:
                clock.check()
                tokens += len(self._engine.ids(text))
            except RequestError as error:
                results.append(HiddenResult(error=error))
            else:
                states = array("f")
                for layer in numbers:
                    states.extend(language.hidden_state(text, layer))
                results.append(HiddenResult(numbers, states))
        self.record(GenerateMetrics(tokens, total_seconds=clock.seconds))
        return results

    def do_render_chat(self, messages: Conversation, request: GenerateConfig) -> RenderedPrompt:
        """Return the prompt that ``chat`` would continue."""
        return language.render_chat(checked_conversation(messages), request)

    def encode(self, text: str) -> list[int]:
        """Return the code point of each character; see `core.Tokenizing`."""
        self.check_open()
        return language.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids without special tokens."""
        self.check_open()
        return language.decode(ids)

    def _recorded(
        self, operation: str, prompts: Sequence[str], config: GenerateConfig, first: int = 0
    ) -> list[str]:
        """Return the prompts, checked to be texts and recorded as a call."""
        texts = checked_prompts(operation, prompts, first)
        self.calls.append(Call(operation, tuple(texts), (), config))
        return texts

    def _row(self, prompt: str, config: GenerateConfig, clock: RequestClock) -> FakeGeneration:
        return FakeGeneration(self._engine, prompt, config, clock)

    def _stream(self, prompt: str, config: GenerateConfig) -> FakeStream:
        def begin() -> FakeGeneration:
            return self._row(prompt, config, RequestClock(config))

        return FakeStream(begin, self.record, GenerateMetrics())

    def _pairs(self, prompts: Sequence[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        clock = RequestClock(config)
        rows = [self._row(prompt, config, clock) for prompt in prompts]
        first_error: RequestError | None = None

        try:
            for index, row in enumerate(rows):
                try:
                    for token in row.tokens():
                        yield index, token
                except RequestError as error:
                    first_error = first_error or error
        finally:
            self.record(_metrics(rows, clock))

        if first_error is not None:
            raise first_error

    def _classified(
        self, prompts: Iterable[str], config: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        clock = RequestClock(config)
        tokens = rows = 0

        for prompt in prompts:
            self.check_open()
            try:
                clock.check()
                ids = self._engine.ids(prompt)
                result = self._read(prompt, ids, config)
            except RequestError as error:
                result = ClassifyResult(error=error)
            else:
                tokens, rows = tokens + len(ids), rows + 1

            # Before each result, because a reader may stop at any; the log gets the entire call.
            self._finished.metrics = GenerateMetrics(tokens, 0, rows, total_seconds=clock.seconds)
            yield result

        self.record(GenerateMetrics(tokens, 0, rows, total_seconds=clock.seconds))

    def _read(self, prompt: str, ids: list[int], config: GenerateConfig) -> ClassifyResult:
        """Return the token drawn after a prompt, and the labels' scores."""
        script, question = self._engine.script, language.question(prompt)
        likely = next(map(ord, script.foreseen(question)), language.END)
        token = language.draw(likely, ids, config)
        own = language.logprob(token, likely) if config.return_logprobs else None

        result = ClassifyResult(Token(token, language.decode([token]), own))
        if not config.labels:
            return result
        texts = label_texts(prompt, config.labels, config.label_prefix)
        self._engine.check_length(len(ids) + max(map(len, texts)) - 1)  # the last is not read
        scores = script.scores(prompt, question, config.labels, texts)
        return with_scores(result, scores)


def _result(row: FakeGeneration) -> BatchResult:
    tokens: list[Token] = []
    try:
        tokens.extend(row.tokens())  # tokens before an error are kept
    except RequestError as error:
        stopped = isinstance(error, GenerationCancelled)
        return BatchResult(tuple(tokens), "cancelled" if stopped else "error", error)
    return BatchResult(tuple(tokens), row.reason or "error")


def _metrics(rows: Sequence[FakeGeneration], clock: RequestClock) -> GenerateMetrics:
    return GenerateMetrics(
        prompt_tokens=sum(row.prompt_tokens for row in rows),
        generated_tokens=sum(row.emitted for row in rows),
        total_seconds=clock.seconds,
    )
