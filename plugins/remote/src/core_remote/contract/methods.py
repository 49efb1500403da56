"""The optional protocols of `core.extensions` over core's API, a class for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from core import validate
from core.errors import CoreError
from core.kit.chat import RenderedPrompt
from core.kit.operations import (
    AttentionInspectorOperations,
    BatchStreamingOperations,
    ClassifyStreamingOperations,
    HiddenStatesOperations,
    ScoringOperations,
    SubmittingOperations,
    TokenizingOperations,
)
from core.kit.support import (
    checked_layers,
    checked_pairs,
    checked_prompts,
    checked_stream,
    checked_text,
    text_error,
    unicode_error,
)
from core.messages import checked_conversation
from core.options import GenerateConfig
from core.protocols import Capability
from core.types import (
    AttentionSnapshot,
    ClassifyResult,
    Conversation,
    HiddenResult,
    MemoryReport,
    Score,
    Token,
)
from core_remote.contract import checking
from core_remote.contract.calls import RunningCall
from core_remote.contract.model import (
    ContractModel,
    no_score,
    sorted_out,
    without,
    wrong_turn,
)
from core_remote.contract.pairs import Pairs
from core_remote.contract.plans import CallPlan, RowsPlan, ValuePlan
from core_remote.contract.results import Results
from core_remote.contract.token_methods import TokenPromptsMethods
from core_remote.stream import RemoteStream
from core_wires.plain import prompt_of

_PLAIN = GenerateConfig()


class TokenizingMethods(TokenizingOperations, ContractModel):
    """`core.Tokenizing`."""

    def encode(self, text: str) -> list[int]:
        """Return the ids that the server's model reads for a prompt, a leading BOS included."""
        return self.plan_encode(text).run()

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids, without special tokens."""
        return self.plan_decode(ids).run()

    def do_render_chat(self, messages: Conversation, request: GenerateConfig) -> RenderedPrompt:
        """Return the prompt that ``chat`` would continue."""
        return self.plan_render_chat(messages, request).run()

    def plan_encode(self, text: str) -> CallPlan[list[int]]:
        """Return the plan of ``encode``."""
        self.check_usable()
        checked_text("encode", text)
        if error := unicode_error(text):
            raise error
        check = partial(checking.of_ids, info=self.info)
        return ValuePlan(self.call("encode", {"text": text}), list[int], _PLAIN, check)

    def plan_decode(self, ids: Sequence[int]) -> CallPlan[str]:
        """Return the plan of ``decode``."""
        self.check_usable()
        given = validate.integers("ids", ids, 0)
        return ValuePlan(self.call("decode", {"ids": given}), str, _PLAIN)

    def plan_render_chat(
        self, messages: Conversation, request: GenerateConfig
    ) -> CallPlan[RenderedPrompt]:
        """Return the plan of ``render_chat``."""
        turns = checked_conversation(messages)
        if error := wrong_turn(turns):
            raise error
        return Rendered(self.call("render_chat", {"messages": turns}), _of_template(request))


class Rendered(ValuePlan[RenderedPrompt]):
    """The result of ``render_chat``: a prompt, with its special tokens."""

    def __init__(self, call: RunningCall, config: GenerateConfig) -> None:
        super().__init__(call, object, config)  # type: ignore[arg-type]  # made here

    def _value(self) -> RenderedPrompt:
        try:
            prompt = prompt_of(super()._value())
        except ValueError as error:
            raise self._call.nonsense(str(error)) from None
        return prompt if isinstance(prompt, RenderedPrompt) else RenderedPrompt(prompt)


def _of_template(config: GenerateConfig) -> GenerateConfig:
    """Return only the options of ``render_chat``."""
    return GenerateConfig(
        chat_template_kwargs=config.chat_template_kwargs,
        continue_final_message=config.continue_final_message,
    )


class SubmittingMethods(SubmittingOperations, ContractModel):
    """`core.Submitting`."""

    def do_submit(self, prompt: str, request: GenerateConfig) -> RemoteStream:
        """Send ``generate`` at once; its tokens wait in the stream."""
        [text] = checked_prompts("submit", [prompt])
        stream = self.stream("generate", {"prompt": text}, request, text_error(text))
        return stream.begin_now()


class BatchStreamingMethods(BatchStreamingOperations, ContractModel):
    """`core.BatchStreaming`."""

    def do_batch_stream(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> Iterator[tuple[int, Token]]:
        """Yield pairs of row index and token, in the order they are generated."""
        return self.plan_batch_stream(prompts, request).read()

    def plan_batch_stream(self, prompts: Sequence[str], request: GenerateConfig) -> Pairs:
        """Return the plan of ``batch_stream``."""
        texts = checked_prompts("batch_stream", prompts)
        wrong, _ = sorted_out(texts)
        # The server raises the error of the first row that fails: each keeps its place, and a text
        # that cannot be sent fails there as an empty one.
        sent = ["" if place in wrong else text for place, text in enumerate(texts)]
        call = self.call("batch_stream", {"prompts": sent})
        return Pairs(call, request, len(texts), wrong, self.record)


class ClassifyStreamingMethods(ClassifyStreamingOperations, ContractModel):
    """`core.ClassifyStreaming`."""

    def do_classify_iter(
        self, prompts: Iterable[str], request: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        """Yield results of ``classify``, a request per block: no server reads while it answers."""
        return self.plan_classify_iter(prompts, request).read()

    def plan_classify_iter(self, prompts: Iterable[str], request: GenerateConfig) -> Results:
        """Return the plan of ``classify_iter``."""
        given = checked_stream("classify_iter", prompts)
        return Results(given, request, self.classification, self.record)


class ScoringMethods(ScoringOperations, ContractModel):
    """`core.Scoring`."""

    def do_score(
        self, prompts: Sequence[str], continuations: Sequence[str], request: GenerateConfig
    ) -> list[Score]:
        """Return how likely ``continuations[i]`` is after ``prompts[i]``."""
        return self.answered(self.plan_score(prompts, continuations, request))

    def plan_score(
        self, prompts: Sequence[str], continuations: Sequence[str], request: GenerateConfig
    ) -> CallPlan[list[Score]]:
        """Return the plan of ``score``."""
        heads, tails = checked_pairs("score", prompts, continuations)
        wrong, _ = sorted_out(heads)
        for place, tail in enumerate(tails):
            error = text_error(tail, "continuation")
            if error is not None:
                wrong.setdefault(place, error)
        arguments = {"prompts": without(heads, wrong), "continuations": without(tails, wrong)}
        return RowsPlan(self.call("score", arguments), Score, request, len(heads), wrong, no_score)


class HiddenStatesMethods(HiddenStatesOperations, ContractModel):
    """`core.HiddenStates`."""

    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        """Return the hidden states at the last token of each prompt."""
        return self.answered(self.plan_hidden_states(prompts, request, layers))

    def plan_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> CallPlan[list[HiddenResult]]:
        """Return the plan of ``hidden_states``."""
        numbers = checked_layers(layers, self.info.num_layers)
        texts = checked_prompts("hidden_states", prompts)
        wrong, sound = sorted_out(texts)
        call = self.call("hidden_states", {"prompts": sound, "layers": numbers})
        failed = partial(_no_states, numbers)
        return RowsPlan(call, HiddenResult, request, len(texts), wrong, failed)


class AttentionInspectorMethods(AttentionInspectorOperations, ContractModel):
    """`core.AttentionInspector`."""

    def do_inspect_attention(self, prompt: str, request: GenerateConfig) -> AttentionSnapshot:
        """Return the keys that a prefill of this prompt computes."""
        return self.answered(self.plan_inspect_attention(prompt, request))

    def plan_inspect_attention(
        self, prompt: str, request: GenerateConfig
    ) -> CallPlan[AttentionSnapshot]:
        """Return the plan of ``inspect_attention``."""
        [text] = checked_prompts("inspect_attention", [prompt])
        if error := text_error(text):
            raise error
        call, check = self.call("inspect_attention", {"prompt": text}), checking.of_attention
        return ValuePlan(call, AttentionSnapshot, request, check)


class MemoryReportingMethods(ContractModel):
    """`core.MemoryReporting` of the server's model."""

    def memory(self) -> MemoryReport:
        """Return the device memory in use there, and the peak since the last reset."""
        return self.plan_memory().run()

    def reset_peak_memory(self) -> None:
        """Reset the peak."""
        self.plan_reset_peak_memory().run()

    def plan_memory(self) -> CallPlan[MemoryReport]:
        """Return the plan of ``memory``."""
        self.check_usable()
        return ValuePlan(self.call("memory", {}), MemoryReport, _PLAIN)

    def plan_reset_peak_memory(self) -> CallPlan[object]:
        """Return the plan of ``reset_peak_memory``."""
        self.check_usable()
        return ValuePlan(self.call("reset_peak_memory", {}), object, _PLAIN)


METHODS: dict[Capability, type[ContractModel]] = {
    Capability.TOKENIZING: TokenizingMethods,
    Capability.SUBMITTING: SubmittingMethods,
    Capability.BATCH_STREAMING: BatchStreamingMethods,
    Capability.CLASSIFY_STREAMING: ClassifyStreamingMethods,
    Capability.SCORING: ScoringMethods,
    Capability.TOKEN_PROMPTS: TokenPromptsMethods,
    Capability.HIDDEN_STATES: HiddenStatesMethods,
    Capability.ATTENTION_INSPECTOR: AttentionInspectorMethods,
    Capability.MEMORY_REPORTING: MemoryReportingMethods,
}
"""The class that a model has for each optional protocol that its server offers."""


def _no_states(layers: tuple[int, ...], place: int, error: CoreError) -> HiddenResult:
    return HiddenResult(layers, error=error)
