"""`FakeModel`: every operation of a loaded model, with the answers that a test sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Unpack

from core import validate
from core.errors import GenerationCancelled, RequestError
from core.kit.base import RequestClock, TextModelBase
from core.kit.chat import RenderedPrompt
from core.kit.labels import label_texts, with_scores
from core.kit.support import (
    checked_layers,
    checked_prompts,
    checked_stream,
    refuse_options,
)
from core.messages import checked_conversation
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    RequestOptions,
    TemplateOptions,
    resolve_classify,
    resolve_generate,
    resolve_request,
    resolve_template,
)
from core.protocols import Capability, TokenStream
from core.testing import states, vocabulary
from core.testing.generation import Engine, Generation
from core.testing.sampling import draw, logprob
from core.testing.script import Answers, Errors, Labels, Script
from core.testing.stream import FakeStream, ReadStream
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
        Capability.GENERATE,
        Capability.CHAT,
        Capability.CHAT_TEMPLATE,
        Capability.CLASSIFY,
        Capability.BATCH_GENERATE,
        Capability.LOGPROBS,
        Capability.SEED,
        Capability.PARALLEL,
        Capability.ROTATE,
        Capability.TOKENIZING,
        Capability.SUBMITTING,
        Capability.BATCH_STREAMING,
        Capability.CLASSIFY_STREAMING,
        Capability.HIDDEN_STATES,
    }
)
_HONOURED = {
    *("max_tokens", "stop", "stop_tokens", "cancel", "timeout", "seed", "return_logprobs"),
    *("temperature", "top_k", "top_p", "min_p", "repeat_penalty"),
    *("labels", "label_prefix", "labels_only", "return_logits"),  # or their capability is missing
    *("chat_template_kwargs", "continue_final_message"),
}


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


class FakeModel(TextModelBase):
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
        self._engine = Engine(
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
            vocab_size=vocabulary.VOCAB_SIZE,
            num_layers=states.LAYERS,
            hidden_size=states.SIZE,
            quant_bits=0,
            quant_group=0,
            context_length=self._engine.context_length,
            logit_tolerance=0.0,
        )

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """Return the answer to a prompt, character by character."""
        request = self._checked(Capability.GENERATE, config, options)
        [text] = self._noted("generate", [prompt], request)
        return self._stream(text, request)

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        """Return the answer to the last message."""
        request = self._checked(Capability.CHAT, config, options)
        turns = checked_conversation(messages)
        prompt = vocabulary.render_chat(turns, request)
        self.calls.append(Call("chat", (), tuple(turns), request))
        return self._stream(prompt, request)

    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Return the first token of each answer, without using the answer up, and label scores."""
        request = self._checked_classify(Capability.CLASSIFY, config, options)
        return list(self._classified(self._noted("classify", prompts, request), request))

    def batch_generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> list[BatchResult]:
        """Return the answer to each prompt."""
        request = self._checked(Capability.BATCH_GENERATE, config, options)
        texts, clock = self._noted("batch_generate", prompts, request), RequestClock(request)
        rows = [Generation(self._engine, text, request, clock) for text in texts]
        results = [_result(row) for row in rows]
        self.record(_metrics(rows, clock))
        return results

    def batch_stream(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> Iterator[tuple[int, Token]]:
        """Return pairs of row and token, row by row; the first failed row's error ends it."""
        request = self._checked(Capability.BATCH_STREAMING, config, options)
        return self._streamed(self._noted("batch_stream", prompts, request), request)

    def classify_iter(
        self,
        prompts: Iterable[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> Iterator[ClassifyResult]:
        """Run ``classify``, prompt by prompt; each is a separate call in ``calls``."""
        request = self._checked_classify(Capability.CLASSIFY_STREAMING, config, options)
        return self._classified(
            self._each(checked_stream("classify_iter", prompts), request), request
        )

    def submit(self, prompt: str, config: GenerateConfig | None = None, /) -> TokenStream:
        """Run ``generate`` to its end; its tokens wait in the stream."""
        request = self._checked(Capability.SUBMITTING, config, {})
        [text] = self._noted("submit", [prompt], request)
        return ReadStream(self._stream(text, request), self.record)

    def hidden_states(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        *,
        layers: Sequence[int] = (-1,),
        **options: Unpack[RequestOptions],
    ) -> list[HiddenResult]:
        """Return states that are similar for prompts with common words."""
        self.check_open()
        request = resolve_request(config, options, "hidden_states")
        numbers = checked_layers(layers, states.LAYERS)
        texts, clock = self._noted("hidden_states", prompts, request), RequestClock(request)
        results = [states.read(self._engine, text, numbers, clock) for text in texts]
        read = [text for text, found in zip(texts, results, strict=True) if found.error is None]
        tokens = sum(map(len, map(vocabulary.encode, read)))
        self.record(GenerateMetrics(tokens, total_seconds=clock.seconds))
        return results

    def encode(self, text: str) -> list[int]:
        """Return the code point of each character; see `core.Tokenizing`."""
        self.check_open()
        return vocabulary.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids without special tokens."""
        self.check_open()
        return vocabulary.decode(ids)

    def render_chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        **options: Unpack[TemplateOptions],
    ) -> RenderedPrompt:
        """Return the prompt that ``chat`` would continue."""
        self.check_open()
        request = resolve_template(config, options)
        self._refuse_options(request, Capability.TOKENIZING)
        return vocabulary.render_chat(checked_conversation(messages), request)

    def _checked(
        self, operation: Capability, config: GenerateConfig | None, options: GenerateOptions
    ) -> GenerateConfig:
        self.check_open()
        request = resolve_generate(config, options, operation.value)
        self._refuse_options(request, operation)
        return request

    def _checked_classify(
        self, operation: Capability, config: GenerateConfig | None, options: ClassifyOptions
    ) -> GenerateConfig:
        self.check_open()
        request = resolve_classify(config, options)
        self._refuse_options(request, operation)
        return request

    def _refuse_options(self, request: GenerateConfig, operation: Capability) -> None:
        refuse_options(request, operation, self._backend, self.capabilities, honours=_HONOURED)

    def _noted(
        self, operation: str, prompts: Sequence[str], config: GenerateConfig, first: int = 0
    ) -> list[str]:
        """Return the prompts, made sure to be texts and written down as a call."""
        texts = checked_prompts(operation, prompts, first)
        self.calls.append(Call(operation, tuple(texts), (), config))
        return texts

    def _each(self, prompts: Iterable[str], config: GenerateConfig) -> Iterator[str]:
        for index, prompt in enumerate(prompts):
            yield from self._noted("classify_iter", [prompt], config, index)

    def _stream(self, prompt: str, config: GenerateConfig) -> FakeStream:
        def begin() -> Generation:
            return Generation(self._engine, prompt, config, RequestClock(config))

        return FakeStream(begin, self.record)

    def _streamed(
        self, prompts: Sequence[str], config: GenerateConfig
    ) -> Iterator[tuple[int, Token]]:
        clock = RequestClock(config)
        rows = [Generation(self._engine, prompt, config, clock) for prompt in prompts]
        failed: RequestError | None = None

        try:
            for index, row in enumerate(rows):
                try:
                    for token in row.tokens():
                        yield index, token
                except RequestError as error:
                    failed = failed or error
        finally:
            self.record(_metrics(rows, clock))

        if failed is not None:
            raise failed

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

            # Before each result, for a reader may stop at any; the log hears of the whole call.
            self._finished.metrics = GenerateMetrics(tokens, 0, rows, total_seconds=clock.seconds)
            yield result

        self.record(GenerateMetrics(tokens, 0, rows, total_seconds=clock.seconds))

    def _read(self, prompt: str, ids: list[int], config: GenerateConfig) -> ClassifyResult:
        """Return the token drawn after a prompt, and the labels' scores."""
        script, question = self._engine.script, vocabulary.asked(prompt)
        likely = next(map(ord, script.foreseen(question)), vocabulary.END)
        token = draw(likely, ids, config)
        own = logprob(token, likely) if config.return_logprobs else None

        result = ClassifyResult(Token(token, vocabulary.decode([token]), own))
        if not config.labels:
            return result
        texts = label_texts(prompt, config.labels, config.label_prefix)
        self._engine.check_length(len(ids) + max(map(len, texts)) - 1)  # the last is not read
        scores = script.scores(prompt, question, config.labels, texts)
        return with_scores(result, scores)


def _result(row: Generation) -> BatchResult:
    tokens: list[Token] = []
    try:
        tokens.extend(row.tokens())  # tokens before an error are kept
    except RequestError as error:
        stopped = isinstance(error, GenerationCancelled)
        return BatchResult(tuple(tokens), "cancelled" if stopped else "error", error)
    return BatchResult(tuple(tokens), row.reason or "error")


def _metrics(rows: Sequence[Generation], clock: RequestClock) -> GenerateMetrics:
    return GenerateMetrics(
        prompt_tokens=sum(row.prompt_tokens for row in rows),
        generated_tokens=sum(row.given for row in rows),
        total_seconds=clock.seconds,
    )
