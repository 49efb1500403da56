"""Inputs and results of calls: frozen, slotted dataclasses.

Durations are in seconds, sizes in bytes. Large numeric arrays are float32 ``array.array('f')``:
they support the buffer protocol, so ``numpy.frombuffer(x, dtype="float32")`` reads them without
a copy, and ``repr`` and comparison ignore them.

The result for one prompt has ``to_dict()``, which returns a dictionary for ``json.dumps``, errors
included (infinities and NaN become None), and ``raise_for_error()``, which returns the result or
raises its error. The error holds no stack frames: see `core.records`.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, Self, TypeAlias

from core.records import RowResult, error_record, html_labels, html_table, number, numbers

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "cancelled", "error"]
ModelFormat: TypeAlias = str
"""Name of a format: ``safetensors``, ``gguf``, ``http`` (a server's model), or any other."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token. ``logprob`` is a natural logarithm, set only with ``return_logprobs``."""

    id: int
    text: str
    logprob: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the token for JSON."""
        return {"id": self.id, "text": self.text, "logprob": number(self.logprob)}


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat. ``name`` is the speaker's name, for templates that use one."""

    role: Role
    content: str
    name: str | None = None

    def to_dict(self) -> dict[str, str]:
        """Return the message for JSON and for a chat template; without ``name`` if it is None."""
        turn = {"role": self.role, "content": self.content}
        return turn if self.name is None else {**turn, "name": self.name}


Conversation: TypeAlias = Sequence[Message | Mapping[str, object]]
"""The turns of a chat; ``{"role": ..., "content": ...}`` is equivalent to a `Message`.

As in OpenAI's API, the content may be a list of text parts, and the role ``developer``.
"""


@dataclass(frozen=True, slots=True)
class ClassifyResult(RowResult):
    """Classification of one prompt, from the distribution at its last position.

    ``token`` is sampled there (None when ``error`` is set). ``logits`` has ``vocab_size`` floats.
    With labels: ``probabilities`` are over the labels and sum to 1; ``logprobs`` are joint, over
    the full vocabulary; ``label_mass`` is the probability that the continuation begins with any
    of the labels; ``margin`` is the best probability minus the second best (1.0 for one label).
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

    def to_dict(self, *, logits: bool = False) -> dict[str, object]:
        """Return the result for JSON.

        With ``logits``, include them as a list, or as None if the result has none.
        """
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
        """Return an HTML table for notebooks: the labels, most probable first, or the token."""
        if self.error is not None or self.probabilities is not None:
            return html_labels(self.error, self.probabilities)
        if self.label is not None:
            return html_table(["label"], [[self.label]])
        return html_table(["token"], [[repr(self.token.text) if self.token else ""]])


@dataclass(frozen=True, slots=True)
class BatchResult(RowResult):
    """Result of ``batch_generate`` for one prompt."""

    tokens: tuple[Token, ...] = ()
    finish_reason: FinishReason = "stop"
    error: Exception | None = None

    @property
    def text(self) -> str:
        """Joined text of the tokens."""
        return "".join(token.text for token in self.tokens)

    def to_dict(self) -> dict[str, object]:
        """Return the result for JSON, its text included."""
        return {
            "text": self.text,
            "tokens": [token.to_dict() for token in self.tokens],
            "finish_reason": self.finish_reason,
            "error": error_record(self.error),
        }


@dataclass(frozen=True, slots=True)
class TokenSequence(RowResult):
    """A prompt and the tokens generated after it, without the token that ended the generation.

    ``generated[i]`` is True if ``ids[i]`` was generated. ``logprobs`` has one value per generated
    token if ``return_logprobs`` was set.
    """

    ids: tuple[int, ...]
    generated: tuple[bool, ...]
    finish_reason: FinishReason
    error: Exception | None
    logprobs: tuple[float, ...] = ()

    @classmethod
    def of(cls, prompt: Sequence[int], result: BatchResult) -> Self:
        """Return the prompt's tokens, then the result's."""
        new = [token.id for token in result.tokens]
        logprobs = (token.logprob for token in result.tokens)
        return cls(
            ids=(*prompt, *new),
            generated=(False,) * len(prompt) + (True,) * len(new),
            finish_reason=result.finish_reason,
            error=result.error,
            logprobs=tuple(logprob for logprob in logprobs if logprob is not None),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the sequence for JSON."""
        return {
            "ids": list(self.ids),
            "generated": list(self.generated),
            "finish_reason": self.finish_reason,
            "logprobs": list(map(number, self.logprobs)),
            "error": error_record(self.error),
        }


@dataclass(frozen=True, slots=True)
class Score(RowResult):
    """Log-probability (natural logarithm) of a continuation after its prompt."""

    logprob: float = 0.0
    token_logprobs: tuple[float, ...] = ()
    is_greedy: bool = False  # greedy decoding would produce exactly this continuation
    error: Exception | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the score for JSON."""
        return {
            "logprob": number(self.logprob),
            "token_logprobs": list(map(number, self.token_logprobs)),
            "is_greedy": self.is_greedy,
            "error": error_record(self.error),
        }


@dataclass(frozen=True, slots=True)
class HiddenResult(RowResult):
    """Hidden states at the last token of one prompt.

    ``layers`` are the non-negative numbers of the layers, in the requested order; ``states`` is one
    float32 array of ``len(layers) * hidden_size`` values, layer after layer:
    ``numpy.frombuffer(states, "float32").reshape(len(layers), -1)``.
    """

    layers: tuple[int, ...] = ()
    states: array[float] | None = field(default=None, repr=False, compare=False)
    error: Exception | None = None

    @property
    def vectors(self) -> tuple[memoryview, ...]:
        """The state of each layer, without a copy; empty if the prompt failed."""
        if self.states is None:
            return ()
        size = len(self.states) // len(self.layers)
        whole = memoryview(self.states)
        return tuple(whole[start : start + size] for start in range(0, len(whole), size))

    def to_dict(self) -> dict[str, object]:
        """Return the result for JSON, with a list of numbers for each layer."""
        return {
            "layers": list(self.layers),
            "states": [list(map(number, vector)) for vector in self.vectors],
            "error": error_record(self.error),
        }


@dataclass(frozen=True, slots=True)
class GenerateMetrics:
    """Cost of one call. ``cached_prompt_tokens`` counts those that no forward pass computed."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    generated_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    total_seconds: float = 0.0
    peak_memory_bytes: int = 0
    active_memory_bytes: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the metrics for JSON, with both rates."""
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

    ``quant_bits`` is 0 for an unquantised model. ``logit_tolerance`` bounds how far the logits of
    one prompt, or the scores of label sentences, may differ between two runs, batched or not, at
    the dtype in use.
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
    """A model found on disk, described from its headers alone. ``path`` is absolute.

    ``format`` is ``safetensors``, ``gguf``, or a backend-specific name. ``names`` are the model's
    names in its store, the display name first; `core.load_model` accepts each of them.
    ``quantisation`` is the usual name of the weights' storage (``Q4_K_M``, ``MXFP4``, ``BF16``);
    ``modified`` is in seconds since 1970; ``problem`` describes damage to the files in a few words,
    and is empty if none was detected. ``parts`` are the layers that an Ollama name includes in
    addition to the file at ``path`` (`core.models.ollama.LAYERS`): ``adapter``, whose files are
    ``adapters``, ``system`` and so on.
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
        """The first of its names; outside a store, the name of its file or directory."""
        return self.names[0] if self.names else os.path.basename(self.path)

    @property
    def handle(self) -> str:
        """Argument for `core.load_model`: the path, or the name if that includes more parts."""
        return self.name if self.parts else self.path


@dataclass(frozen=True, slots=True)
class Device:
    """A device that a backend computes on. ``detail`` names its library (BLAS, driver)."""

    name: str
    kind: Literal["cpu", "gpu"]
    memory_bytes: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A load setting that was chosen automatically, with its reason."""

    name: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Device memory that a model's library holds at this moment."""

    active_bytes: int
    peak_bytes: int
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """Status of one registered backend, obtained without loading a model.

    ``options`` maps backend-specific load options to their descriptions, if the backend lists them.
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
