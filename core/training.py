"""Options and reports of training an adapter (`core.Trainable`). Defaults are mlx-lm's.

Not implemented by any backend of this version; fields with defaults may be added.
"""

from __future__ import annotations

from dataclasses import dataclass

from core import validate
from core.types import Message


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A prompt and its completion, or a conversation whose assistant turns are learned.

    See `core.Trainable`: no backend takes it yet.
    """

    prompt: str = ""
    completion: str = ""
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """LoRA hyperparameters. A wrong value raises `InvalidOptionError`.

    See `core.Trainable`: no backend takes them yet.
    """

    rank: int = 8
    scale: float = 20.0
    dropout: float = 0.0
    num_layers: int = 16
    learning_rate: float = 1e-5
    batch_size: int = 4
    iterations: int = 1000
    mask_prompt: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rank", "num_layers", "batch_size", "iterations"):
            validate.integer(name, getattr(self, name), 1)
        validate.real("scale", self.scale, 0.0, above=True)
        validate.real("dropout", self.dropout, 0.0, 1.0)
        validate.real("learning_rate", self.learning_rate, 0.0, above=True)
        validate.flag("mask_prompt", self.mask_prompt)
        validate.integer("seed", self.seed, 0)


@dataclass(frozen=True, slots=True)
class TrainStep:
    """One optimiser step: mean loss per token in nats, and how fast it went.

    See `core.Trainable`: no backend reports it yet.
    """

    step: int
    loss: float
    tokens: int
    seconds: float
