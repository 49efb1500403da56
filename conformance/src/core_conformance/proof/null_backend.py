"""A backend that declares everything and answers nothing. No error, no token, no work.

It passes the clauses that nothing breaks, kept by doing nothing; the list below is held
exactly, so that no check that emptiness should fail can become empty itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from core.protocols import PROTOCOL_VERSION, Capability
from core.training import TrainStep
from core.types import (
    AttentionSnapshot,
    BatchResult,
    Choice,
    ClassifyResult,
    Device,
    GenerateMetrics,
    HiddenResult,
    MemoryReport,
    ModelInfo,
    Score,
    Token,
    TokenSequence,
)

PASSES = frozenset(
    {
        # nothing of nothing
        "batch.empty",
        "classify.empty",
        # what it says about itself is well formed, and true
        "identity.availability",
        "identity.capabilities",
        "identity.declared",
        "identity.formats",
        "identity.name",
        "identity.optional-protocols",
        "identity.protocol",
        # it accepts what has to be accepted
        "loading.path-types",
        "loading.spelled-defaults",
        # it refuses to load nothing
        "loading.probe-agrees",
        # it calls nothing its own
        "loading.description-agrees",
        "loading.description-of-others",
        # it declares everything: there is nothing to refuse
        "errors.undeclared-options",
        # who does nothing leaves nothing behind, and changes nothing
        "errors.inputs-unchanged",
        "lifecycle.close-twice",
        "lifecycle.failures",
        "lifecycle.loads",
        "lifecycle.open-stream",
        "lifecycle.other-models",
        "lifecycle.silence",
        "lifecycle.threads",
        "memory.report",
        "metrics.stream-final",
        "streaming.close-behind",
    }
)
"""The ids of the checks that emptiness honestly satisfies."""


class NullStream(Iterator[Token]):
    """A stream that ends at once."""

    finish_reason = "stop"
    metrics = GenerateMetrics()

    def __next__(self) -> Token:
        raise StopIteration

    def text(self) -> str:
        """No text."""
        return ""

    def to_dict(self) -> dict[str, object]:
        """Nothing."""
        return {}

    def train(self, examples: object, config: object = None, /) -> Iterator[TrainStep]:
        """No step."""
        return iter(())

    def save_adapter(self, directory: object, /) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class NullAsyncStream:
    """One for ``async for`` that ends at once."""

    finish_reason = "stop"
    metrics = GenerateMetrics()

    def __aiter__(self) -> NullAsyncStream:
        return self

    async def __anext__(self) -> Token:
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Nothing."""


class NullModel:
    """A model with every method there is, none of which looks at its options."""

    model_type = ""
    info = ModelInfo("", 0, 0, 0, 0, 0, 1024, 0.0)  # room enough for every check
    metrics = GenerateMetrics()

    def generate(self, prompt: str, config: object = None, /, **options: Any) -> NullStream:
        """No token."""
        return NullStream()

    def chat(self, messages: object, config: object = None, /, **options: Any) -> NullStream:
        """No token."""
        return NullStream()

    def submit(self, prompt: str, config: object = None, /) -> NullStream:
        """No token."""
        return NullStream()

    def classify(
        self, prompts: Sequence[str], config: object = None, /, **options: Any
    ) -> list[ClassifyResult]:
        """Empty results."""
        return [ClassifyResult() for _ in prompts]

    def classify_iter(
        self, prompts: Iterable[str], config: object = None, /, **options: Any
    ) -> Iterator[ClassifyResult]:
        """Empty results."""
        return (ClassifyResult() for _ in prompts)

    def batch_generate(
        self, prompts: Sequence[str], config: object = None, /, **options: Any
    ) -> list[BatchResult]:
        """Empty results."""
        return [BatchResult() for _ in prompts]

    def batch_stream(
        self, prompts: Sequence[str], config: object = None, /, **options: Any
    ) -> Iterator[tuple[int, Token]]:
        """No token."""
        return iter(())

    def score(self, prompts: Sequence[str], continuations: Sequence[str], /) -> list[Score]:
        """Empty results."""
        return [Score() for _ in prompts]

    def generate_tokens(self, prompts: Any, config: object = None, /, **options: Any) -> list[Any]:
        """Empty sequences."""
        return [TokenSequence((), (), "stop", None) for _ in prompts]

    def stream_tokens(self, prompt: Any, config: object = None, /, **options: Any) -> Any:
        """An empty stream."""
        return self.generate("")

    def score_tokens(
        self, prompts: Any, continuations: Any, config: object = None, /, **options: Any
    ) -> list[Score]:
        """Empty results."""
        return [Score() for _ in prompts]

    def hidden_states(
        self, prompts: Sequence[str], config: object = None, /, **options: Any
    ) -> list[HiddenResult]:
        """Empty results."""
        return [HiddenResult() for _ in prompts]

    def encode(self, text: str) -> list[int]:
        """No ids."""
        return []

    def decode(self, ids: Sequence[int]) -> str:
        """No text."""
        return ""

    def render_chat(self, messages: object) -> str:
        """No text."""
        return ""

    def inspect_attention(self, prompt: str, /) -> AttentionSnapshot:
        """No layers."""
        return AttentionSnapshot(0, 0, 0, 0, "", ((array("f"),),))

    def memory(self) -> MemoryReport:
        """No memory."""
        return MemoryReport(0, 0, 0)

    def reset_peak_memory(self) -> None:
        """Nothing."""

    def choices(self) -> Sequence[Choice]:
        """No choices."""
        return ()

    def with_adapter(self, path: object, /) -> NullModel:
        """Another model that answers nothing."""
        return NullModel()

    def train(self, examples: object, config: object = None, /) -> Iterator[TrainStep]:
        """No step."""
        return iter(())

    def save_adapter(self, directory: object, /) -> None:
        """Nothing."""

    def declared(self) -> frozenset[Capability]:
        """Everything."""
        return NullBackend.capabilities

    async def call_async(
        self, operation: str, /, *arguments: object, **options: object
    ) -> tuple[object, GenerateMetrics]:
        """Empty results."""
        return [], GenerateMetrics()

    def stream_async(self, operation: str, /, *arguments: object, **options: object) -> Any:
        """An empty stream."""
        return NullAsyncStream()

    def close(self) -> None:
        """Nothing."""

    def __enter__(self) -> NullModel:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class NullBackend:
    """A backend that loads anything."""

    name = "null"
    protocol = PROTOCOL_VERSION
    capabilities = frozenset(Capability)
    formats = frozenset({"safetensors", "gguf"})

    def available(self) -> bool:
        """Always."""
        return True

    def unavailable_reason(self) -> str | None:
        """None."""
        return None

    def devices(self) -> Sequence[Device]:
        """None."""
        return ()

    def refusal(self, path: object, /) -> str | None:
        """Refuses nothing."""
        return None

    def describe_model(self, path: str, /) -> None:
        """Describes nothing."""

    def load_model(self, path: object, config: object) -> Any:
        """Load a model that answers nothing."""
        return NullModel()
