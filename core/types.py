"""What goes in and what comes out: frozen, slotted dataclasses.

Durations are in seconds, sizes in bytes. Large numeric arrays are float32 ``array.array('f')``:
they support the buffer protocol, so ``numpy.frombuffer(x, dtype="float32")`` reads them without
a copy, and they are left out of ``repr`` and of comparison.

What a call brings for one prompt has ``to_dict()``, a dictionary that ``json.dumps`` takes as it
is, errors and all (infinities and NaN are None there), and ``raise_for_error()``, which returns the
result or raises what kept it from being one. That error holds no frames: see `core.frames`.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, Self, TypeAlias

from core.frames import drop_frames
from core.records import error_record, html_table, number, numbers

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "cancelled", "error"]
ModelFormat: TypeAlias = str
"""The name of a format: ``safetensors``, ``gguf``, ``http`` (a server's model), or any other."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token. ``logprob`` is natural-log, and there only when ``return_logprobs`` asked."""

    id: int
    text: str
    logprob: float | None = None

    def to_dict(self) -> dict[str, object]:
        """The token for JSON."""
        return {"id": self.id, "text": self.text, "logprob": number(self.logprob)}


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat. ``name`` is its speaker's, for templates that have a place for it."""

    role: Role
    content: str
    name: str | None = None

    def to_dict(self) -> dict[str, str]:
        """Return the message for JSON, and for a chat template; a name only where it has one."""
        turn = {"role": self.role, "content": self.content}
        return turn if self.name is None else {**turn, "name": self.name}


Conversation: TypeAlias = Sequence[Message | Mapping[str, object]]
"""The turns of a chat; ``{"role": ..., "content": ...}`` stands for a `Message`.

The content may be a list of text parts, as OpenAI's API has them, and the role ``developer``.
"""


@dataclass(frozen=True, slots=True)
class ClassifyResult:
    """What the model says at the last position of one prompt.

    ``token`` is sampled there (None when ``error`` is set). ``logits`` has ``vocab_size`` floats.
    With labels: ``probabilities`` are over the labels and sum to 1; ``logprobs`` are joint, over
    the full vocabulary; ``label_mass`` is the probability that the continuation begins with any
    of the labels; ``margin`` is the best probability minus the second (1.0 for a single label).
    With ``labels_only`` all but the label may be None; see `core.GenerateConfig`.
    """

    token: Token | None = None
    logits: array[float] | None = field(default=None, repr=False, compare=False)
    label: str | None = None
    probabilities: dict[str, float] | None = None
    logprobs: dict[str, float] | None = None
    label_mass: float | None = None
    margin: float | None = None
    error: Exception | None = None

    def __post_init__(self) -> None:
        if self.error is not None:
            drop_frames(self.error)

    def raise_for_error(self) -> Self:
        """The result itself. Raises its error where the prompt failed."""
        if self.error is not None:
            raise self.error
        return self

    def to_dict(self, *, logits: bool = False) -> dict[str, object]:
        """The result for JSON; with ``logits`` also the list of them, or None where none are."""
        record: dict[str, object] = {
            "token": None if self.token is None else self.token.to_dict(),
            "label": self.label,
            "probabilities": numbers(self.probabilities),
            "logprobs": numbers(self.logprobs),
            "label_mass": number(self.label_mass),
            "margin": number(self.margin),
            "error": error_record(self.error),
        }
        if logits:
            record["logits"] = None if self.logits is None else list(map(number, self.logits))
        return record

    def _repr_html_(self) -> str:
        """The labels with their probabilities, best first, or the token; shown by notebooks."""
        if self.error is not None:
            return html_table(["error"], [[f"{type(self.error).__name__}: {self.error}"]])
        if self.probabilities is None and self.label is not None:
            return html_table(["label"], [[self.label]])
        if self.probabilities is None:
            return html_table(["token"], [[repr(self.token.text) if self.token else ""]])
        ranked = sorted(self.probabilities.items(), key=lambda pair: -pair[1])
        rows = [(label, f"{probability:.4f}") for label, probability in ranked]
        return html_table(["label", "probability"], rows)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What ``batch_generate`` made of one prompt."""

    tokens: tuple[Token, ...] = ()
    finish_reason: FinishReason = "stop"
    error: Exception | None = None

    def __post_init__(self) -> None:
        if self.error is not None:
            drop_frames(self.error)

    @property
    def text(self) -> str:
        """The tokens' text, joined."""
        return "".join(token.text for token in self.tokens)

    def raise_for_error(self) -> Self:
        """The result itself. Raises its error where the prompt failed."""
        if self.error is not None:
            raise self.error
        return self

    def to_dict(self) -> dict[str, object]:
        """The result for JSON, its text included."""
        return {
            "text": self.text,
            "tokens": [token.to_dict() for token in self.tokens],
            "finish_reason": self.finish_reason,
            "error": error_record(self.error),
        }


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """A prompt and what was generated behind it; the token that ended it is left out.

    ``generated[i]`` tells whether ``ids[i]`` was generated. ``logprobs`` has one value per
    generated token, where they were asked for.
    """

    ids: tuple[int, ...]
    generated: tuple[bool, ...]
    finish_reason: FinishReason
    error: Exception | None
    logprobs: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.error is not None:
            drop_frames(self.error)

    @classmethod
    def of(cls, prompt: Sequence[int], result: BatchResult) -> Self:
        """The prompt's tokens, then the result's."""
        new = [token.id for token in result.tokens]
        found = (token.logprob for token in result.tokens)
        return cls(
            ids=(*prompt, *new),
            generated=(False,) * len(prompt) + (True,) * len(new),
            finish_reason=result.finish_reason,
            error=result.error,
            logprobs=tuple(logprob for logprob in found if logprob is not None),
        )

    def raise_for_error(self) -> Self:
        """The sequence itself. Raises its error where the prompt failed."""
        if self.error is not None:
            raise self.error
        return self

    def to_dict(self) -> dict[str, object]:
        """The sequence for JSON."""
        return {
            "ids": list(self.ids),
            "generated": list(self.generated),
            "finish_reason": self.finish_reason,
            "logprobs": list(map(number, self.logprobs)),
            "error": error_record(self.error),
        }


@dataclass(frozen=True, slots=True)
class Score:
    """How likely a continuation is after its prompt, in natural-log probability."""

    logprob: float = 0.0
    token_logprobs: tuple[float, ...] = ()
    is_greedy: bool = False  # greedy decoding would have produced exactly this
    error: Exception | None = None

    def __post_init__(self) -> None:
        if self.error is not None:
            drop_frames(self.error)

    def raise_for_error(self) -> Self:
        """The score itself. Raises its error where the pair failed."""
        if self.error is not None:
            raise self.error
        return self

    def to_dict(self) -> dict[str, object]:
        """The score for JSON."""
        return {
            "logprob": number(self.logprob),
            "token_logprobs": list(map(number, self.token_logprobs)),
            "is_greedy": self.is_greedy,
            "error": error_record(self.error),
        }


@dataclass(frozen=True, slots=True)
class HiddenResult:
    """The hidden states at the last token of one prompt.

    ``layers`` are the numbers of the layers, none of them negative, in the order in which they were
    asked for; ``states`` is one float32 array of ``len(layers) * hidden_size`` values, one layer's
    behind another's: ``numpy.frombuffer(states, "float32").reshape(len(layers), -1)``.
    """

    layers: tuple[int, ...] = ()
    states: array[float] | None = field(default=None, repr=False, compare=False)
    error: Exception | None = None

    def __post_init__(self) -> None:
        if self.error is not None:
            drop_frames(self.error)

    @property
    def vectors(self) -> tuple[memoryview, ...]:
        """The state of each layer, without a copy; none where the prompt failed."""
        if self.states is None:
            return ()
        size = len(self.states) // len(self.layers)
        whole = memoryview(self.states)
        return tuple(whole[start : start + size] for start in range(0, len(whole), size))

    def raise_for_error(self) -> Self:
        """The result itself. Raises its error where the prompt failed."""
        if self.error is not None:
            raise self.error
        return self

    def to_dict(self) -> dict[str, object]:
        """The result for JSON, with a list of numbers for each layer."""
        return {
            "layers": list(self.layers),
            "states": [list(map(number, vector)) for vector in self.vectors],
            "error": error_record(self.error),
        }


@dataclass(frozen=True, slots=True)
class GenerateMetrics:
    """What one call cost. ``cached_prompt_tokens`` are those that no forward pass computed."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    generated_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    total_seconds: float = 0.0
    peak_memory_bytes: int = 0
    active_memory_bytes: int = 0

    def to_dict(self) -> dict[str, object]:
        """The metrics for JSON, with both rates."""
        return {
            **asdict(self),
            "prefill_tokens_per_second": self.prefill_tokens_per_second,
            "decode_tokens_per_second": self.decode_tokens_per_second,
        }

    @property
    def prefill_tokens_per_second(self) -> float:
        """Computed prompt tokens per second; 0.0 when no time was spent."""
        computed = self.prompt_tokens - self.cached_prompt_tokens
        return computed / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Generated tokens per second; 0.0 when no time was spent."""
        return self.generated_tokens / self.decode_seconds if self.decode_seconds else 0.0


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts about a loaded model.

    ``quant_bits`` is 0 for an unquantised model. ``logit_tolerance`` says how far the logits of
    one prompt may differ between two runs, batched or not, at the dtype in use.
    """

    architecture: str
    vocab_size: int
    num_layers: int
    hidden_size: int
    quant_bits: int
    quant_group: int
    context_length: int
    logit_tolerance: float


@dataclass(frozen=True, slots=True)
class AttentionSnapshot:
    """Post-RoPE keys of every layer, in position order.

    ``keys[layer][head]`` is a flat float32 array of ``seq_len * head_dim`` values; ``num_heads``
    counts KV heads.
    """

    num_layers: int
    num_heads: int
    seq_len: int
    head_dim: int
    architecture: str
    keys: tuple[tuple[array[float], ...], ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class DiscoveredModel:
    """A model found on disk, read from its headers alone. ``path`` is absolute.

    ``format`` is an open name: ``safetensors``, ``gguf``, or what a backend calls its own.
    ``names`` are what it is called in the store that it was found in, the one to show first:
    `core.load_model` takes each of them. ``quantisation`` is how its weights are stored, as people
    say it (``Q4_K_M``, ``MXFP4``, ``BF16``); ``modified`` is in seconds since 1970; ``problem``
    says in a few words what is wrong with its files, and is empty where nothing was seen.
    ``parts`` are what its names stand for beside the file at ``path``, in Ollama's store
    (`core.models.ollama.LAYERS`): ``adapter``, whose files are ``adapters``, ``system`` and so on.
    """

    path: str
    model_type: str
    quant_bits: int
    quant_group: int
    num_files: int
    format: ModelFormat
    size_bytes: int
    source: str
    names: tuple[str, ...] = ()
    quantisation: str = ""
    modified: float = 0.0
    problem: str = ""
    parts: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The first of its names; outside of a store, that of its file or directory."""
        return self.names[0] if self.names else os.path.basename(self.path)

    @property
    def handle(self) -> str:
        """What to give `core.load_model`: its path, or its name where that stands for more."""
        return self.name if self.parts else self.path


@dataclass(frozen=True, slots=True)
class Device:
    """Something a backend computes on. ``detail`` names the library behind it (BLAS, driver)."""

    name: str
    kind: Literal["cpu", "gpu"]
    memory_bytes: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """Something the program chose for the user, and why."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Device memory held by a model's library at this moment."""

    active_bytes: int
    peak_bytes: int
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """What is known about one registered backend without loading a model.

    ``options`` are load options of its own, each with what it does, where the backend tells them.
    """

    name: str
    distribution: str
    version: str
    available: bool
    reason: str | None
    formats: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
