"""A model of ``infer-cli serve``, with everything that it offers there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from core.errors import CoreError, GenerationCancelled
from core.kit.base import RequestClock
from core.kit.support import (
    checked_prompts,
    text_error,
    unicode_error,
)
from core.messages import checked_conversation
from core.options import GenerateConfig
from core.types import BatchResult, ClassifyResult, Conversation, Message, Score
from core_remote.contract.calls import RunningCall, StreamWire
from core_remote.contract.plans import CallPlan, RowsPlan
from core_remote.model import RemoteModel
from core_remote.stream import RemoteStream

T = TypeVar("T")


class ContractModel(RemoteModel):
    """The operations; the optional protocols are in `core_remote.contract.methods`.

    Each method makes a plan, which a thread runs or `core.aio` awaits.
    """

    def do_generate(self, prompt: str, request: GenerateConfig) -> RemoteStream:
        """Continue a prompt, token by token."""
        [text] = checked_prompts("generate", [prompt])
        return self.stream("generate", {"prompt": text}, request, text_error(text))

    def do_chat(self, messages: Conversation, request: GenerateConfig) -> RemoteStream:
        """Answer a conversation, through the template of the server's model."""
        turns = checked_conversation(messages)
        return self.stream("chat", {"messages": turns}, request, wrong_turn(turns))

    def do_classify(self, prompts: Sequence[str], request: GenerateConfig) -> list[ClassifyResult]:
        """Read the next-token distribution of each prompt."""
        return self.answered(self.plan_classify(prompts, request))

    def do_batch_generate(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> list[BatchResult]:
        """Continue many prompts."""
        return self.answered(self.plan_batch_generate(prompts, request))

    # ------------------------------------------------------------------ plans

    def plan_classify(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> CallPlan[list[ClassifyResult]]:
        """Return the plan of ``classify``."""
        return self.classification(checked_prompts("classify", prompts), request)

    def plan_batch_generate(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> CallPlan[list[BatchResult]]:
        """Return the plan of ``batch_generate``."""
        texts = checked_prompts("batch_generate", prompts)
        wrong, sound = sorted_out(texts)
        call = self.call("batch_generate", {"prompts": sound})
        return RowsPlan(call, BatchResult, request, len(texts), wrong, _stopped_row)

    def classification(
        self, texts: Sequence[str], request: GenerateConfig, clock: RequestClock | None = None
    ) -> CallPlan[list[ClassifyResult]]:
        """Return a call of ``classify`` with valid options."""
        wrong, sound = sorted_out(texts)
        call = self.call("classify", {"prompts": sound})
        count, failed = len(texts), _no_classification
        return RowsPlan(call, ClassifyResult, request, count, wrong, failed, clock)

    # ------------------------------------------------------------------ for the protocols

    def call(self, operation: str, arguments: Mapping[str, object]) -> RunningCall:
        """Return a call of this model, not sent yet."""
        return RunningCall(self._connection, operation, arguments, self.info)

    def stream(
        self,
        operation: str,
        arguments: Mapping[str, object],
        config: GenerateConfig,
        wrong: CoreError | None,
    ) -> RemoteStream:
        """Return a stream that has not begun."""
        wire = StreamWire(self.call(operation, arguments), config, wrong)
        return RemoteStream(wire, config, self.record)

    def answered(self, plan: CallPlan[T]) -> T:
        """Return the result of a plan, and set the thread's last metrics."""
        result = plan.run()
        self.record(plan.metrics)
        return result


def wrong_turn(turns: Sequence[Message]) -> CoreError | None:
    """Return the error of the first message that cannot be sent."""
    texts = [text for turn in turns for text in (turn.content, turn.name or "")]
    return next(filter(None, (unicode_error(text, "message") for text in texts)), None)


def sorted_out(texts: Sequence[str]) -> tuple[dict[int, CoreError], list[str]]:
    """Return the errors of invalid texts by index, and the valid texts."""
    found = [text_error(text) for text in texts]
    wrong: dict[int, CoreError] = {
        place: error for place, error in enumerate(found) if error is not None
    }
    return wrong, without(texts, wrong)


def without(rows: Sequence[T], wrong: Collection[int]) -> list[T]:
    """Return the rows to send."""
    return [row for place, row in enumerate(rows) if place not in wrong]


def _stopped_row(place: int, error: CoreError) -> BatchResult:
    cancelled = isinstance(error, GenerationCancelled)
    return BatchResult((), "cancelled" if cancelled else "error", error)


def _no_classification(place: int, error: CoreError) -> ClassifyResult:
    return ClassifyResult(error=error)


def no_score(place: int, error: CoreError) -> Score:
    """Return the score of a failed pair."""
    return Score(error=error)
