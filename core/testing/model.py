"""`FakeModel`: every operation of a loaded model, with the answers that a test sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from core.errors import GenerationCancelled, RequestError
from core.kit.base import RequestClock
from core.kit.chat import RenderedPrompt
from core.kit.labels import label_texts, with_scores
from core.kit.operations import BatchStreamingOperations, SubmittingOperations
from core.messages import checked_conversation
from core.options import GenerateConfig
from core.protocols import Capability, TokenStream
from core.testing import language
from core.testing.language import FakeGeneration, FakeStream, FinishedRow
from core.testing.reading import CONTEXT_LENGTH, NAME, Call, ReadingModel
from core.testing.script import Answers, Errors, Labels, Script
from core.types import BatchResult, ClassifyResult, Conversation, GenerateMetrics, Token

_ALWAYS = frozenset(
    {
        *(Capability.GENERATE, Capability.CHAT, Capability.CHAT_TEMPLATE, Capability.CLASSIFY),
        *(Capability.BATCH_GENERATE, Capability.LOGPROBS, Capability.SEED, Capability.PARALLEL),
        *(Capability.ROTATE, Capability.TOKENIZING, Capability.SUBMITTING),
        *(Capability.BATCH_STREAMING, Capability.CLASSIFY_STREAMING, Capability.HIDDEN_STATES),
    }
)


def capabilities(labels: Labels | None) -> frozenset[Capability]:
    """Return the capabilities of a fake: labels only if the test sets them."""
    return _ALWAYS if labels is None else _ALWAYS | {Capability.LABELS}


class FakeModel(SubmittingOperations, BatchStreamingOperations, ReadingModel):
    """A `core.TextModel` without a model, whose answers a test sets by prompt.

    ``answers``: one text for all prompts; a mapping from prompt to text; a sequence, of which each
    generation takes the next; or a function of the prompt. ``labels``: a function of prompt and
    labels, or a mapping from prompt, that gives a label, or the probability of each label.
    ``errors``: the error of a prompt, as a mapping or a function; a `core.RequestError` is its
    row's error, as in any model. In a conversation, the prompt is the last message.

    Every character is a token. ``calls`` lists the requests, in order. A prompt without an answer
    raises AssertionError.
    """

    honoured: ClassVar[frozenset[str]] = frozenset(
        {"temperature", "top_k", "top_p", "min_p", "repeat_penalty"}
    )

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
        super().__init__(Script(answers, labels, errors), context_length, context_overflow, name)
        self.capabilities = capabilities(labels)

    def do_generate(self, prompt: str, request: GenerateConfig) -> TokenStream:
        """Return the answer to a prompt, character by character."""
        [text] = self.recorded("generate", [prompt], request)
        return self._stream(text, request)

    def do_chat(self, messages: Conversation, request: GenerateConfig) -> TokenStream:
        """Return the answer to the last message."""
        turns = checked_conversation(messages)
        prompt = language.render_chat(turns, request)
        self.calls.append(Call("chat", (), tuple(turns), request))
        return self._stream(prompt, request)

    def do_submit(self, prompt: str, request: GenerateConfig) -> TokenStream:
        """Run ``generate`` to its end; its tokens wait in the stream."""
        [text] = self.recorded("submit", [prompt], request)
        row = FinishedRow(self._row(text, request, RequestClock(request)))
        return FakeStream(lambda: row, self.record, row.metrics())

    def do_batch_generate(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> list[BatchResult]:
        """Return the answer to each prompt."""
        texts, clock = self.recorded("batch_generate", prompts, request), RequestClock(request)
        rows = [self._row(text, request, clock) for text in texts]
        results = [_result(row) for row in rows]
        self.record(_metrics(rows, clock))
        return results

    def do_batch_stream(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> Iterator[tuple[int, Token]]:
        """Return pairs of row and token, row by row; the first failed row's error ends it."""
        return self._pairs(self.recorded("batch_stream", prompts, request), request)

    def read(self, prompt: str, ids: list[int], request: GenerateConfig) -> ClassifyResult:
        """Return the token drawn after a prompt, and the labels' scores."""
        script, question = self._engine.script, language.question(prompt)
        likely = next(map(ord, script.foreseen(question)), language.END)
        token = language.draw(likely, ids, request)
        own = language.logprob(token, likely) if request.return_logprobs else None

        result = ClassifyResult(Token(token, language.decode([token]), own))
        if not request.labels:
            return result
        texts = label_texts(prompt, request.labels, request.label_prefix)
        self._engine.check_length(len(ids) + max(map(len, texts)) - 1)  # the last is not read
        scores = script.scores(prompt, question, request.labels, texts)
        return with_scores(result, scores)

    def do_render_chat(self, messages: Conversation, request: GenerateConfig) -> RenderedPrompt:
        """Return the prompt that ``chat`` would continue."""
        return language.render_chat(checked_conversation(messages), request)

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
