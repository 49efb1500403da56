"""A model of any server with OpenAI's API: its texts and its chats."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import CoreError, RequestError
from core.kit.base import RequestClock
from core.kit.chat import RenderedPrompt, refuse_names
from core.kit.support import (
    checked_prompts,
    text_error,
    unicode_error,
)
from core.messages import checked_conversation
from core.options import GenerateConfig
from core.types import BatchResult, Conversation, GenerateMetrics, Message
from core_remote.batches import read_all
from core_remote.connection import Connection
from core_remote.model import ModelFacts, RemoteModel
from core_remote.openai.requests import Request, RequestVariant
from core_remote.openai.streams import OpenAIWire
from core_remote.stream import RemoteStream


class OpenAIModel(RemoteModel):
    """A model with ``generate``, ``chat`` and ``batch_generate``; everything else is refused.

    Ids of tokens are derived from their texts, because the API has only texts (`events.id_of`).
    """

    def __init__(
        self, backend: str, connection: Connection, facts: ModelFacts, variant: RequestVariant
    ) -> None:
        super().__init__(backend, connection, facts)
        self._variant = variant

    def do_generate(self, prompt: str, request: GenerateConfig) -> RemoteStream:
        """Continue a prompt, token by token."""
        [text] = checked_prompts("generate", [prompt])
        return RemoteStream(self._continuing(text, request), request, self.record)

    def do_chat(self, messages: Conversation, request: GenerateConfig) -> RemoteStream:
        """Answer a conversation, through the template of the server's model."""
        turns = checked_conversation(messages)
        refuse_names(turns, "A server with this API does not show whether its template has a place")

        def prepare() -> Request:
            _raise(next(filter(None, map(_of_turn, turns)), None))
            return self._variant.chat(turns, request)

        wire = OpenAIWire(self._connection, self._variant, request, prepare)
        return RemoteStream(wire, request, self.record)

    def do_batch_generate(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> list[BatchResult]:
        """Continue many prompts: a request for each, as many at once as the server takes."""
        texts, clock = checked_prompts("batch_generate", prompts), RequestClock(request)
        costs: list[GenerateMetrics] = []
        wires = [self._continuing(text, request, counted=False) for text in texts]
        streams = [RemoteStream(wire, request, costs.append).begin_now() for wire in wires]
        results, cost = read_all(streams, costs, clock)
        self.record(cost)
        return results

    def _continuing(self, text: str, config: GenerateConfig, *, counted: bool = True) -> OpenAIWire:
        def prepare() -> Request:
            _raise(_of_prompt(text))
            return self._variant.completion(text, config)

        return OpenAIWire(self._connection, self._variant, config, prepare, counted=counted)


def _of_prompt(text: str) -> CoreError | None:
    if isinstance(text, RenderedPrompt):
        return RequestError(
            "The server reads every prompt as literal text, so a core.RenderedPrompt would lose "
            "its special tokens. Use chat(), or a plain string."
        )
    return text_error(text)


def _of_turn(turn: Message) -> CoreError | None:
    return unicode_error(turn.content, "message")


def _raise(error: CoreError | None) -> None:
    if error is not None:
        raise error
