"""A deterministic backend for tests of the command line: it reads words, not weights.

The token after a prompt is the prompt's last word; a label is as likely as it is often in the
prompt, and hidden states are counts of its words. A prompt with "BOOM" in it fails, and one with
"SLOW" waits until it is cancelled. One with
"PAUSE" makes the file that the environment variable FAKE_PAUSE names, and waits until it is gone.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from zlib import crc32

from core.errors import (
    EmptyPromptError,
    GenerationCancelled,
    InvalidModelError,
    OutOfMemoryError,
    PromptTooLongError,
)
from core.kit.support import (
    refuse_load_options,
    refuse_options,
)
from core.messages import checked_messages
from core.options import GenerateConfig, LoadConfig, resolve_classify
from core.protocols import Capability
from core.types import (
    Choice,
    ClassifyResult,
    Conversation,
    Device,
    GenerateMetrics,
    HiddenResult,
    ModelInfo,
    Token,
)

_LOAD_OPTIONS = {"speed": "beads a second", "prefix_cache": "beads that are kept"}


@dataclass
class FakeBackend:
    name: str
    capabilities: frozenset[Capability]
    reason: str | None = None
    protocol: int = 2
    formats: frozenset[str] = frozenset({"safetensors", "gguf"})
    loaded: list[LoadConfig] = field(default_factory=list)
    own_options: Mapping[str, str] = field(default_factory=lambda: _LOAD_OPTIONS)

    def available(self) -> bool:
        return self.reason is None

    def unavailable_reason(self) -> str | None:
        return self.reason

    def devices(self) -> list[Device]:
        return [Device("abacus", "cpu", 2_000_000_000, "WoodBLAS")]

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> PlainModel:
        refuse_load_options(config, self.name, self.capabilities, _LOAD_OPTIONS)
        if os.path.basename(path) == "crash":
            raise RuntimeError("the loader has a bug")
        if os.path.exists(said := os.path.join(path, "error.txt")):
            with open(said) as file:
                raise InvalidModelError(file.read())
        self.loaded.append(config)
        kind = FakeModel if Capability.TOKENIZING in self.capabilities else PlainModel
        return kind(self)


class PlainModel:
    model_type = "fake"
    info = ModelInfo("fake", 100, 2, 8, 0, 0, 64, 0.0)
    metrics = GenerateMetrics()

    def __init__(self, backend: FakeBackend) -> None:
        self._backend = backend
        self.batches: list[int] = []

    def classify(
        self, prompts: Sequence[str], config: GenerateConfig | None = None, /, **options: Any
    ) -> list[ClassifyResult]:
        config = resolve_classify(config, options)  # type: ignore[arg-type]
        name, capabilities = self._backend.name, self._backend.capabilities
        refuse_options(config, Capability.CLASSIFY, name, capabilities)
        BATCHES.append(len(prompts))
        return [_classified(prompt, config) for prompt in prompts]

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FakeModel(PlainModel):
    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")

    def render_chat(self, messages: Conversation, *_: Any, **__: Any) -> str:
        turns = checked_messages(messages)
        return "".join(f"<{m.role}>{m.content}</{m.role}>" for m in turns)

    def hidden_states(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        *,
        layers: Sequence[int] = (-1,),
        **options: Any,
    ) -> list[HiddenResult]:
        BATCHES.append(len(prompts))
        for prompt in prompts:
            _pause(prompt)
        return [_shown(prompt, [layer % 3 for layer in layers]) for prompt in prompts]

    def choices(self) -> list[Choice]:
        device = self._backend.loaded[-1].options.get("speed", "abacus")
        return [Choice("device", str(device), "it was on the desk")]


def _pause(prompt: str) -> None:
    if "PAUSE" in prompt and (pause := os.environ.get("FAKE_PAUSE")):
        open(pause, "w").close()
        while os.path.exists(pause):
            time.sleep(0.01)


def _classified(prompt: str, config: GenerateConfig) -> ClassifyResult:
    if not prompt:
        return ClassifyResult(error=EmptyPromptError("The prompt is empty."))
    if "LONG" in prompt:
        return ClassifyResult(error=PromptTooLongError(9, 8, own=64))
    if "BOOM" in prompt:
        return ClassifyResult(error=OutOfMemoryError(f"No beads left for {prompt}."))
    _pause(prompt)
    while "SLOW" in prompt:
        if config.cancel is not None and config.cancel.is_set():
            return ClassifyResult(error=GenerationCancelled())
        time.sleep(0.01)
    logprob = -0.5 if config.return_logprobs else None
    token = Token(len(prompt), prompt.split(" ")[-1], logprob)
    if not config.labels:
        return ClassifyResult(token)
    counts = {label: prompt.count(label) * len(label) + 0.5 for label in config.labels}
    shares = {label: count / sum(counts.values()) for label, count in counts.items()}
    best, *rest = sorted(shares, key=lambda label: -shares[label])
    if config.labels_only and not config.return_logprobs:
        return ClassifyResult(label=best)
    margin = shares[best] - shares[rest[0]] if rest else 1.0
    logprobs = {label: -1.0 / count for label, count in counts.items()}
    return ClassifyResult(token, None, best, shares, logprobs, 0.75, margin)


def _shown(prompt: str, layers: Sequence[int]) -> HiddenResult:
    """How often the prompt has words of each kind; in layer 0, its last word alone."""
    if not prompt:
        return HiddenResult(error=EmptyPromptError("The prompt is empty."))
    states = array("f")
    for layer in layers:
        words = prompt.split()
        kinds = [crc32(word.encode()) % 8 for word in (words if layer else words[-1:])]
        states.extend(float(SIGN * kinds.count(kind)) for kind in range(8))
    return HiddenResult(tuple(layers), states)


BATCHES: list[int] = []
SIGN = 1
_BASIC = frozenset({Capability.CLASSIFY, Capability.LABELS, Capability.DEVICE_REPORTING})
_FULL = _BASIC | {
    Capability.HIDDEN_STATES,
    Capability.LOGPROBS,
    Capability.SEED,
    Capability.TOKENIZING,
    Capability.EXPLAINING,
}
FAKE = FakeBackend("fake", _FULL)
PLAIN = FakeBackend("fake_plain", _BASIC)
OFF = FakeBackend("fake_off", _BASIC, reason="no abacus on this desk. Buy one.")
