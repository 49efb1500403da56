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
        # its version is a number, and its methods take no keyword that they do not know
        "growth.keywords",
        "growth.versions",
        # it accepts what has to be accepted
        "loading.odd-configs",
        "loading.path-types",
        "loading.spelled-defaults",
        # it refuses to load nothing
        "loading.probe-agrees",
        # it calls nothing its own
        "loading.description-agrees",
        "loading.description-of-others",
        # who does nothing leaves nothing, and changes nothing
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
        "streaming.close-after",
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
        """Return no text."""
        return ""

    def to_dict(self) -> dict[str, object]:
        """Return an empty dict."""
        return {}

    def train(self, examples: object, config: object = None, /) -> Iterator[TrainStep]:
        """Return no step."""
        return iter(())

    def save_adapter(self, directory: object, /) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class NullAsyncStream:
    """A stream for ``async for`` that ends at once."""

    finish_reason = "stop"
    metrics = GenerateMetrics()

    def __aiter__(self) -> NullAsyncStream:
        return self

    async def __anext__(self) -> Token:
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Do nothing."""


class NullModel:
    """A model with every method there is, none of which looks at its options."""

    model_type = ""
    info = ModelInfo("", 0, 0, 0, 0, 0, 1024, 0.0)  # room enough for every check
    metrics = GenerateMetrics()

    def generate(self, prompt: str, config: object = None, /, **options: Any) -> NullStream:
        """Return no token."""
        return NullStream()

    def chat(self, messages: object, config: object = None, /, **options: Any) -> NullStream:
        """Return no token."""
        return NullStream()

    def submit(self, prompt: str, config: object = None, /) -> NullStream:
        """Return no token."""
        return NullStream()

    def classify(
        self, prompts: Sequence[str], config: object = None, /, **options: Any
    ) -> list[ClassifyResult]:
        """Return empty results."""
        return [ClassifyResult() for _ in prompts]

    def classify_iter(
        self, prompts: Iterable[str], config: object = None, /, **options: Any
    ) -> Iterator[ClassifyResult]:
        """Return empty results."""
        return (ClassifyResult() for _ in prompts)

    def batch_generate(
        self, prompts: Sequence[str], config: object = None, /, **options: Any
    ) -> list[BatchResult]:
        """Return empty results."""
        return [BatchResult() for _ in prompts]

    def batch_stream(
        self, prompts: Sequence[str], config: object = None, /, **options: Any
    ) -> Iterator[tuple[int, Token]]:
        """Return no token."""
        return iter(())

    def score(self, prompts: Sequence[str], continuations: Sequence[str], /) -> list[Score]:
        """Return empty results."""
        return [Score() for _ in prompts]

    def generate_tokens(self, prompts: Any, config: object = None, /, **options: Any) -> list[Any]:
        """Return empty sequences."""
        return [TokenSequence((), (), "stop", None) for _ in prompts]

    def stream_tokens(self, prompt: Any, config: object = None, /, **options: Any) -> Any:
        """Return an empty stream."""
        return self.generate("")

    def score_tokens(
        self, prompts: Any, continuations: Any, config: object = None, /, **options: Any
    ) -> list[Score]:
        """Return empty results."""
        return [Score() for _ in prompts]

    def hidden_states(
        self, prompts: Sequence[str], config: object = None, /, **options: Any
    ) -> list[HiddenResult]:
        """Return empty results."""
        return [HiddenResult() for _ in prompts]

    def encode(self, text: str) -> list[int]:
        """Return no ids."""
        return []

    def decode(self, ids: Sequence[int]) -> str:
        """Return no text."""
        return ""

    def render_chat(self, messages: object) -> str:
        """Return no text."""
        return ""

    def inspect_attention(self, prompt: str, /) -> AttentionSnapshot:
        """Return no layers."""
        return AttentionSnapshot(0, 0, 0, 0, "", ((array("f"),),))

    def memory(self) -> MemoryReport:
        """Return no memory."""
        return MemoryReport(0, 0, 0)

    def reset_peak_memory(self) -> None:
        """Do nothing."""

    def choices(self) -> Sequence[Choice]:
        """Return no choices."""
        return ()

    def with_adapter(self, path: object, /) -> NullModel:
        """Return another model that answers nothing."""
        return NullModel()

    def train(self, examples: object, config: object = None, /) -> Iterator[TrainStep]:
        """Return no step."""
        return iter(())

    def save_adapter(self, directory: object, /) -> None:
        """Do nothing."""

    def declared(self) -> frozenset[Capability]:
        """Return every capability."""
        return NullBackend.capabilities

    async def call_async(
        self, operation: str, /, *arguments: object, **options: object
    ) -> tuple[object, GenerateMetrics]:
        """Return empty results."""
        return [], GenerateMetrics()

    def stream_async(self, operation: str, /, *arguments: object, **options: object) -> Any:
        """Return an empty stream."""
        return NullAsyncStream()

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> NullModel:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class NullBackend:
    """A backend that loads anything."""

    name = "null"
    protocol = PROTOCOL_VERSION
    capabilities = frozenset(Capability) - {Capability.LABEL_SENTENCES}
    formats = frozenset({"safetensors", "gguf"})

    def available(self) -> bool:
        """Return True."""
        return True

    def unavailable_reason(self) -> str | None:
        """Return None: the backend is available."""
        return None

    def devices(self) -> Sequence[Device]:
        """Return no devices."""
        return ()

    def refusal(self, path: object, /) -> str | None:
        """Return None: nothing is refused."""
        return None

    def describe_model(self, path: str, /) -> None:
        """Return None: nothing is described."""

    def load_model(self, path: object, config: object) -> Any:
        """Load a model that answers nothing."""
        return NullModel()
