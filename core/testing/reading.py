"""`ReadingModel`: the parts that the fakes share, requests that only read their prompts."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from core import validate
from core.errors import RequestError
from core.kit.base import RequestClock, TextModelBase
from core.kit.operations import (
    ClassifyStreamingOperations,
    HiddenStatesOperations,
    TokenizingOperations,
)
from core.kit.support import checked_layers, checked_prompts, checked_stream, refuse_options
from core.options import GenerateConfig
from core.protocols import Capability
from core.testing import language
from core.testing.language import FakeEngine
from core.testing.script import Script
from core.types import ClassifyResult, GenerateMetrics, HiddenResult, Message, ModelInfo

NAME = "fake"
CONTEXT_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class Call:
    """A request that reached the model with valid options. ``chat`` has messages only."""

    operation: str
    prompts: tuple[str, ...]
    messages: tuple[Message, ...]
    config: GenerateConfig


class ReadingModel(
    TokenizingOperations, ClassifyStreamingOperations, HiddenStatesOperations, TextModelBase
):
    """A fake with ``classify``, hidden states and a tokenizer. Every character is a token.

    ``calls`` lists the requests, in order.
    """

    capabilities: frozenset[Capability]
    honoured: ClassVar[frozenset[str]] = frozenset()
    state_size: ClassVar[int] = language.STATE_SIZE

    def __init__(
        self, script: Script, context_length: int, overflow: Literal["stop", "rotate"], name: str
    ) -> None:
        super().__init__(name)
        self.calls: list[Call] = []
        self._engine = FakeEngine(
            script,
            validate.integer("context_length", context_length, 1),
            overflow == "rotate",
            self.check_open,
        )

    @abstractmethod
    def read(self, prompt: str, ids: list[int], request: GenerateConfig) -> ClassifyResult:
        """Return the result of ``classify`` for a prompt with these tokens."""

    def state(self, prompt: str, layer: int) -> list[float]:
        """Return the hidden state of a layer after a prompt."""
        return language.hidden_state(prompt, layer)

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
            hidden_size=self.state_size,
            quant_bits=0,
            quant_group=0,
            context_length=self._engine.context_length,
            logit_tolerance=0.0,
        )

    def refuse_unsupported(self, request: GenerateConfig, capability: Capability) -> None:
        """Raise for options that the fake does not support."""
        refuse_options(request, capability, self._backend, self.capabilities, honours=self.honoured)

    def do_classify(self, prompts: Sequence[str], request: GenerateConfig) -> list[ClassifyResult]:
        """Return what is read of each prompt, without using an answer up."""
        return list(self._classified(self.recorded("classify", prompts, request), request))

    def do_classify_iter(
        self, prompts: Iterable[str], request: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        """Run ``classify``, prompt by prompt; each is a separate call in ``calls``."""
        stream = enumerate(checked_stream("classify_iter", prompts))
        texts = (
            text
            for index, prompt in stream
            for text in self.recorded("classify_iter", [prompt], request, index)
        )
        return self._classified(texts, request)

    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        """Return states that are similar for prompts with common words."""
        numbers = checked_layers(layers, language.LAYERS)
        texts, clock = self.recorded("hidden_states", prompts, request), RequestClock(request)
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
                    states.extend(self.state(text, layer))
                results.append(HiddenResult(numbers, states))
        self.record(GenerateMetrics(tokens, total_seconds=clock.seconds))
        return results

    def encode(self, text: str) -> list[int]:
        """Return the code point of each character; see `core.Tokenizing`."""
        self.check_open()
        return language.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids without special tokens."""
        self.check_open()
        return language.decode(ids)

    def recorded(
        self, operation: str, prompts: Sequence[str], config: GenerateConfig, first: int = 0
    ) -> list[str]:
        """Return the prompts, checked to be texts and recorded as a call."""
        texts = checked_prompts(operation, prompts, first)
        self.calls.append(Call(operation, tuple(texts), (), config))
        return texts

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
                result = self.read(prompt, ids, config)
            except RequestError as error:
                result = ClassifyResult(error=error)
            else:
                tokens, rows = tokens + len(ids), rows + 1

            # Before each result, because a reader may stop at any; the log gets the entire call.
            self._finished.metrics = GenerateMetrics(tokens, 0, rows, total_seconds=clock.seconds)
            yield result

        self.record(GenerateMetrics(tokens, 0, rows, total_seconds=clock.seconds))
