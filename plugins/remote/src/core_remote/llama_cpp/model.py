"""A model of llama.cpp's server: its tokens, chats and distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from core.errors import CoreError
from core.kit.base import RequestClock
from core.kit.chat import RenderedPrompt
from core.kit.support import (
    checked_prompts,
    text_error,
    unicode_error,
)
from core.messages import checked_conversation
from core.options import GenerateConfig
from core.types import (
    BatchResult,
    ClassifyResult,
    Conversation,
    GenerateMetrics,
    Message,
    Score,
)
from core_remote.batches import read_all
from core_remote.connection import Connection
from core_remote.llama_cpp.classification import RowClassifier
from core_remote.llama_cpp.generation import ServerGeneration
from core_remote.llama_cpp.rows import Work, gathered
from core_remote.llama_cpp.server import LlamaServer
from core_remote.llama_cpp.streams import Prepare, TokenWire
from core_remote.llama_cpp.tokenizer import Tokenizer
from core_remote.model import ModelFacts, RemoteModel
from core_remote.stream import RemoteStream

T = TypeVar("T")


class LlamaServerModel(RemoteModel):
    """The operations; the optional protocols are in `core_remote.llama_cpp.methods`.

    ``slots``: requests that the server runs concurrently.
    """

    def __init__(
        self,
        backend: str,
        connection: Connection,
        facts: ModelFacts,
        tokenizer: Tokenizer,
        slots: int,
    ) -> None:
        super().__init__(backend, connection, facts)
        self._server, self._tokenizer = LlamaServer(connection), tokenizer
        self._at_once = 2 * slots  # the next are tokenised meanwhile

    def do_generate(self, prompt: str, request: GenerateConfig) -> RemoteStream:
        """Continue a prompt, token by token."""
        [text] = checked_prompts("generate", [prompt])
        return self.continuing(text, request)

    def do_chat(self, messages: Conversation, request: GenerateConfig) -> RemoteStream:
        """Answer a conversation, through the template of the server's model."""
        turns = checked_conversation(messages)

        async def prepare() -> list[int]:
            return await self._tokenizer.prompt(await self.rendered(turns))

        return self.stream_of(prepare, request)

    def do_classify(self, prompts: Sequence[str], request: GenerateConfig) -> list[ClassifyResult]:
        """Read the next-token distribution of each prompt."""
        texts, clock = checked_prompts("classify", prompts), RequestClock(request)
        results, cost = self.classified(texts, request, clock)
        self.record(cost)
        return results

    def do_batch_generate(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> list[BatchResult]:
        """Continue many prompts: a request for each, as many at once as the server has slots."""
        texts = checked_prompts("batch_generate", prompts)
        return self.together([(partial(self.prepared, text), request) for text in texts], request)

    # ------------------------------------------------------------------ for the protocols

    def classified(
        self, texts: Sequence[str], config: GenerateConfig, clock: RequestClock
    ) -> tuple[list[ClassifyResult], GenerateMetrics]:
        """Return the results of ``classify`` with valid options, and the metrics."""
        reader = RowClassifier(self._server, self._tokenizer, config)
        works = [partial(reader.result, text) for text in texts]
        return self.read(works, reader, clock, ClassifyResult)

    async def prepared(self, text: str) -> list[int]:
        """Return the ids of a prompt. Raises its error."""
        if error := text_error(text):
            raise error
        return await self._tokenizer.prompt(text)

    async def rendered(self, turns: Sequence[Message]) -> RenderedPrompt:
        """Return the prompt of a conversation. Raises its error."""
        for text in (text for turn in turns for text in (turn.content, turn.name or "")):
            if error := unicode_error(text, "message"):
                raise error
        return await self._tokenizer.render_chat(turns)

    def continuing(self, text: str, config: GenerateConfig) -> RemoteStream:
        """Return a stream that continues a prompt, not begun yet."""
        return self.stream_of(partial(self.prepared, text), config)

    def stream_of(
        self,
        prepare: Prepare,
        config: GenerateConfig,
        record: Callable[[GenerateMetrics], None] | None = None,
        before: Sequence[int] = (),
    ) -> RemoteStream:
        """Return a stream that continues the ids of ``prepare``, not begun yet.

        ``before`` are the ids whose last character the text may continue.
        """
        tokenizer = self._tokenizer
        generation = ServerGeneration(self._server, tokenizer.vocabulary, tokenizer.limit, config)
        detokenizer = tokenizer.detokenizer(before)
        names = tokenizer.vocabulary.names
        wire = TokenWire(self._connection, generation, prepare, config, detokenizer, names)
        return RemoteStream(wire, config, record or self.record)

    def together(
        self, rows: Sequence[tuple[Prepare, GenerateConfig]], config: GenerateConfig
    ) -> list[BatchResult]:
        """Return the results of several prompts, each with its options, and their total metrics."""
        clock, costs = RequestClock(config), list[GenerateMetrics]()
        streams = [self.stream_of(*row, costs.append).begin_now() for row in rows]
        results, cost = read_all(streams, costs, clock)
        self.record(cost)
        return results

    def scored(
        self, works: Sequence[Work[Score]], reader: RowClassifier, config: GenerateConfig
    ) -> list[Score]:
        """Return the scores of pairs."""
        scores, cost = self.read(works, reader, RequestClock(config), Score)
        self.record(cost)
        return scores

    def read(
        self,
        works: Sequence[Work[T]],
        reader: RowClassifier,
        clock: RequestClock,
        failed: Callable[..., T],
    ) -> tuple[list[T], GenerateMetrics]:
        """Return the results of rows.

        ``failed(error=...)`` makes the result of a row that failed.
        """

        def check() -> None:
            clock.check()
            self.check_usable()

        results = gathered(self._connection, works, self._at_once, check)
        cost = GenerateMetrics(
            prompt_tokens=reader.prompt_tokens,
            cached_prompt_tokens=reader.cached_tokens,
            generated_tokens=reader.drawn_tokens,
            prefill_seconds=clock.seconds,
            total_seconds=clock.seconds,
        )
        rows = [
            failed(error=result) if isinstance(result, CoreError) else result for result in results
        ]
        return rows, cost


def of_sample(config: GenerateConfig, sample: int) -> GenerateConfig:
    """Sample 0 draws what ``generate`` with this seed draws; the others have separate seeds."""
    if config.seed is None or sample == 0:
        return config
    return replace(config, seed=(config.seed + sample * _STRIDE) % 2**64)


_STRIDE = 0x9E3779B97F4A7C15  # of the golden ratio: no small seed meets another's samples
