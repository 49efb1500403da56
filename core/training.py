"""Examples, options and reports of training an adapter (`core.Trainable`).

Most defaults are mlx-lm's; AdamW corrects its bias, as its authors have it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypeAlias

from core import validate
from core.errors import CoreError, InvalidOptionError, TrainingError
from core.messages import checked_messages
from core.types import Message

SCHEDULES = ("constant", "cosine")
DTYPES = ("float32", "bfloat16", "float16")
_ADAM_BETAS = 2


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """What one row teaches, in one of four forms.

    ``prompt`` and ``completion``: what `generate` is to write behind a prompt. ``messages``: a
    conversation whose assistant turns are learned. ``text`` alone: a text from its beginning.
    ``text`` and ``label``: the label of a text, behind ``TrainConfig.template``, at the tokens
    where `classify` reads it.
    """

    prompt: str = ""
    completion: str = ""
    messages: tuple[Message, ...] = ()
    text: str = ""
    label: str | None = None

    @classmethod
    def of(cls, example: object) -> TrainingExample:
        """Return the example itself, or what a mapping with its fields stands for.

        Raises TypeError for anything else, for unknown keys, and for values of another type.
        """
        if isinstance(example, Mapping):
            unknown = [repr(key) for key in example if key not in _FIELDS]
            if unknown:
                raise TypeError(f"it has the key {unknown[0]}, and knows {', '.join(_FIELDS)}")
            example = cls(**{key: it for key, it in example.items() if it is not None})
        if not isinstance(example, TrainingExample):
            kind = type(example).__name__
            raise TypeError(
                f"it is a {kind}, not a core.TrainingExample or a dictionary with its fields"
            )
        for name in ("prompt", "completion", "text", "label"):
            value = getattr(example, name)
            if not isinstance(value, str) and not (name == "label" and value is None):
                raise TypeError(f"its {name} is a {type(value).__name__}, not a string")
        messages = tuple(checked_messages(example.messages))
        return replace(example, messages=messages)


_FIELDS = tuple(item.name for item in fields(TrainingExample))
Examples: TypeAlias = Iterable[TrainingExample | Mapping[str, object]]
"""Examples to learn; ``{"text": ..., "label": ...}`` and the like stand for a `TrainingExample`."""


def checked_examples(examples: object, name: str = "Example") -> list[TrainingExample]:
    """Return examples as a list; they are numbered from 1 in errors, after ``name``.

    Raises `TrainingError` for what is not an example, and where there is none.
    """
    if isinstance(examples, str | bytes | Mapping) or not isinstance(examples, Iterable):
        kind = type(examples).__name__
        raise TrainingError(f"Examples are a list of core.TrainingExample, not a {kind}.")
    checked = []
    for number, example in enumerate(examples, 1):
        try:
            checked.append(TrainingExample.of(example))
        except (CoreError, TypeError) as error:
            raise TrainingError(f"{name} {number}: {str(error).rstrip('.')}.") from None
    return checked


def resolve_train(config: object) -> TrainConfig:
    """Return the config of a call of ``train``, by default the defaults. Raises TypeError."""
    if config is None:
        return TrainConfig()
    if not isinstance(config, TrainConfig):
        raise TypeError(
            f"train() takes a core.TrainConfig as its config, not a {type(config).__name__}. "
            "A text and its label are one example: {'text': ..., 'label': ...}."
        )
    return config


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """How a LoRA adapter is trained. A wrong value raises `InvalidOptionError`.

    The adapter: ``rank`` numbers between A and B; what they add is multiplied by ``scale``, or,
    where ``alpha`` is given, by ``alpha / rank``, with ``rank_stabilised`` by ``alpha /
    sqrt(rank)`` (arXiv 2312.03732). ``dora``: with magnitudes (arXiv 2402.09353). ``targets``: the
    projections that get one, ``"q_proj"`` and the like, or ``"all-linear"``; ``num_layers``: in so
    many of the last layers. ``adapter_dtype``: that of A and B. ``dropout``: the share of an
    input's numbers that A does not see at a step; which ones, ``seed`` and the step decide.

    What is learned: with ``mask_prompt``, completions, assistant turns and labels alone, and not
    the text in front. Examples with a label stand in ``template``; ``labels`` are those that
    `classify` will be asked with, by default those that occur. ``max_tokens``: a longer example is
    refused.

    A step: ``batch_size`` examples of like length, ``accumulate`` times, then AdamW (arXiv
    1711.05101) with ``learning_rate``, ``betas``, ``eps``, ``weight_decay`` and, as in the paper,
    ``bias_correction``, which MLX's default leaves out. The rate rises over the first ``warmup``
    steps, then stays, or falls along a cosine to ``final_learning_rate`` (``schedule``). Gradients
    longer than ``clip_norm`` are shortened to it; 0 leaves them. ``gradient_checkpointing``: what a
    block computes is computed again for its gradient, and not kept. ``iterations``: steps, at most.

    ``validation``: examples that are not learned; their loss is measured every ``validate_every``
    steps and at the end. After ``patience`` measurements without a better one training stops, and
    the adapter is that of the best; 0 never stops.

    ``directory``: where a checkpoint is written every ``save_every`` steps and at the end, and
    ``resume`` goes on from the last one, with the same losses as if it had never stopped. Without
    a directory nothing is written.
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

    # the adapter
    targets: tuple[str, ...] = ("all-linear",)
    alpha: float | None = None
    rank_stabilised: bool = False
    dora: bool = False
    adapter_dtype: str = "float32"

    # what is learned
    template: str = "{text}"
    labels: tuple[str, ...] = ()
    label_prefix: str = " "
    max_tokens: int = 2048

    # a step
    accumulate: int = 1
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    bias_correction: bool = True
    schedule: str = "constant"
    warmup: int = 0
    final_learning_rate: float = 0.0
    clip_norm: float = 0.0
    gradient_checkpointing: bool = False

    # validation and checkpoints
    validation: tuple[TrainingExample, ...] = field(default=(), repr=False)
    validate_every: int = 100
    patience: int = 0
    directory: str | os.PathLike[str] | None = None
    save_every: int = 100
    resume: bool = False

    def __post_init__(self) -> None:
        at_least_one = ("rank", "num_layers", "batch_size", "iterations", "max_tokens")
        for name in (*at_least_one, "accumulate", "validate_every", "save_every"):
            validate.integer(name, getattr(self, name), 1)
        for name in ("seed", "warmup", "patience"):
            validate.integer(name, getattr(self, name), 0)
        for name in ("scale", "learning_rate", "eps"):
            validate.real(name, getattr(self, name), 0.0, above=True)
        for name in ("weight_decay", "final_learning_rate", "clip_norm"):
            validate.real(name, getattr(self, name), 0.0)
        for name in ("mask_prompt", "rank_stabilised", "dora", "bias_correction", "resume"):
            validate.flag(name, getattr(self, name))
        validate.flag("gradient_checkpointing", self.gradient_checkpointing)
        if validate.real("dropout", self.dropout, 0.0, 1.0) == 1.0:
            raise InvalidOptionError("dropout", self.dropout, "a share below 1: nothing is left")
        if self.alpha is not None:
            validate.real("alpha", self.alpha, 0.0, above=True)
        elif self.rank_stabilised:
            raise InvalidOptionError("rank_stabilised", True, "alpha beside it: it divides alpha")
        validate.one_of("adapter_dtype", self.adapter_dtype, DTYPES)
        validate.one_of("schedule", self.schedule, SCHEDULES)
        validate.text("template", self.template)
        validate.text("label_prefix", self.label_prefix)
        self._check_sequences()

    def _check_sequences(self) -> None:
        object.__setattr__(self, "targets", validate.texts("targets", self.targets))
        object.__setattr__(self, "labels", validate.texts("labels", self.labels))
        validation = checked_examples(self.validation, "Validation example")
        object.__setattr__(self, "validation", tuple(validation))
        if not self.targets:
            raise InvalidOptionError("targets", self.targets, "at least one projection's name")
        betas: object = self.betas
        if not isinstance(betas, tuple | list) or len(betas) != _ADAM_BETAS:
            raise InvalidOptionError("betas", self.betas, "two numbers")
        for beta in self.betas:
            if validate.real("betas", beta, 0.0, 1.0) == 1.0:
                raise InvalidOptionError("betas", self.betas, "two numbers below 1")
        object.__setattr__(self, "betas", tuple(self.betas))
        if self.resume and self.directory is None:
            raise InvalidOptionError("resume", True, "a directory beside it, to go on from")

    @property
    def adapter_scale(self) -> float:
        """The number that B's output is multiplied by."""
        if self.alpha is None:
            return self.scale
        return self.alpha / (math.sqrt(self.rank) if self.rank_stabilised else self.rank)


@dataclass(frozen=True, slots=True)
class TrainStep:
    """One optimiser step: mean loss per token in nats, and how fast it went.

    ``step`` counts from 1 and ``tokens`` those that ran, without padding; ``learned`` are those
    that the loss is of. ``gradient_norm`` is that before clipping. ``validation_loss``: of the
    examples that are not learned, where this step measured it. ``steps``: how many there will be
    at most. ``peak_memory_bytes``: of the device since training began, 0 where nobody knows.
    """

    step: int
    loss: float
    tokens: int
    seconds: float
    learned: int = 0
    learning_rate: float = 0.0
    gradient_norm: float = 0.0
    validation_loss: float | None = None
    steps: int = 0
    peak_memory_bytes: int = 0


class TrainingRun(Iterator[TrainStep]):
    """The steps of a training, which trains as they are read; `run` reads all of them.

    ``model`` is kept until the training has ended, as a stream keeps its model. A run that is
    dropped before its first step has taught nothing, which is logged as a warning.
    """

    def __init__(self, steps: Iterator[TrainStep], model: object) -> None:
        self._steps, self._model = steps, model
        self._is_untouched = True

    def __next__(self) -> TrainStep:
        self._is_untouched = False
        try:
            return next(self._steps)
        except BaseException:
            self._model = None  # it has ended
            raise

    def run(self) -> TrainStep | None:
        """Train to the end. Return the last step that was left to do; None if none was."""
        last = None
        for step in self:
            last = step
        return last

    def close(self) -> None:
        """Stop where it is; the model keeps what it has learned. Twice is fine."""
        self._is_untouched = False
        self._model = None
        if hasattr(self._steps, "close"):
            self._steps.close()

    def __del__(self) -> None:
        if getattr(self, "_is_untouched", False):
            import logging  # a program that logs nothing does without it

            logging.getLogger("core").warning(
                "train() was called and none of its steps was read, so nothing was learned. "
                "Read them: `for step in model.train(...)`, or `model.train(...).run()`."
            )
