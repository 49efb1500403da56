"""Examples, options and reports of training an adapter (`core.Trainable`).

Most defaults are mlx-lm's; AdamW applies bias correction, as in its authors' paper.
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


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """Training example, in one of four forms.

    ``prompt`` and ``completion``: the text that `generate` is to produce after a prompt.
    ``messages``: a conversation whose assistant turns are learned. ``text`` alone: a text from its
    start. ``text`` and ``label``: the label of a text, after ``TrainConfig.template``, at the
    tokens where `classify` reads it.
    """

    prompt: str = ""
    completion: str = ""
    messages: tuple[Message, ...] = ()
    text: str = ""
    label: str | None = None

    @classmethod
    def of(cls, example: object) -> TrainingExample:
        """Return the example itself, or the one that a mapping with its fields describes.

        Raises TypeError for anything else, for unknown keys, and for values of another type.
        """
        if isinstance(example, Mapping):
            unknown = [repr(key) for key in example if key not in _FIELDS]
            if unknown:
                raise TypeError(f"unknown key {unknown[0]}; the keys are {', '.join(_FIELDS)}")
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
"""Examples to learn; a mapping such as ``{"text": ..., "label": ...}`` is a `TrainingExample`."""


def checked_examples(examples: object, name: str = "Example") -> list[TrainingExample]:
    """Return examples as a list; errors number them from 1, after ``name``.

    Raises `TrainingError` for an invalid example.
    """
    if isinstance(examples, str | bytes | Mapping) or not isinstance(examples, Iterable):
        kind = type(examples).__name__
        raise TrainingError(f"Examples must be a list of core.TrainingExample, not a {kind}.")
    checked = []
    for number, example in enumerate(examples, 1):
        try:
            checked.append(TrainingExample.of(example))
        except (CoreError, TypeError) as error:
            raise TrainingError(f"{name} {number}: {str(error).rstrip('.')}.") from None
    return checked


def resolve_train(config: object) -> TrainConfig:
    """Return the config of a call of ``train``, or the default config. Raises TypeError."""
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
    """Options for training a LoRA adapter. An invalid value raises `InvalidOptionError`.

    Adapter: ``rank`` is the inner dimension of A and B; their product is multiplied by ``scale``,
    or, if ``alpha`` is set, by ``alpha / rank``, with ``rank_stabilised`` by ``alpha /
    sqrt(rank)`` (arXiv 2312.03732). ``dora`` adds magnitudes (arXiv 2402.09353). ``targets`` are
    the adapted projections, such as ``"q_proj"``, or ``"all-linear"``; ``num_layers`` is the number
    of adapted layers, counted from the last. ``adapter_dtype`` is the dtype of A and B. ``dropout``
    is the share of A's inputs that are zeroed at a step, chosen by ``seed`` and the step.

    Loss: with ``mask_prompt`` only on completions, assistant turns and labels, not on the text
    before them. Examples with a label are formatted with ``template``; ``labels`` are the ones that
    `classify` will be called with, by default the ones that occur. An example longer than
    ``max_tokens`` is an error.

    Step: ``batch_size`` examples of similar length, ``accumulate`` times, then AdamW (arXiv
    1711.05101) with ``learning_rate``, ``betas``, ``eps``, ``weight_decay`` and, as in the paper,
    ``bias_correction``, which is off by default in MLX. The rate rises over the first ``warmup``
    steps, then is constant, or falls along a cosine to ``final_learning_rate`` (``schedule``).
    Gradients are clipped to the norm ``clip_norm``; 0 disables clipping.
    ``gradient_checkpointing`` recomputes each layer's activations for its gradient instead of
    storing them. ``iterations`` is the maximum number of steps.

    ``validation`` are held-out examples; their loss is measured every ``validate_every`` steps and
    at the end. Training stops after ``patience`` measurements without an improvement, and the
    adapter is the best one; 0 disables stopping.

    A checkpoint is written to ``directory`` every ``save_every`` steps and at the end, and
    ``resume`` continues from the last one, with the same losses as an uninterrupted run. Without
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
        for name in (item.name for item in fields(self) if item.type == "bool"):
            validate.flag(name, getattr(self, name))
        if validate.real("dropout", self.dropout, 0.0, 1.0) == 1.0:
            raise InvalidOptionError("dropout", self.dropout, "a share below 1 (1 drops all)")
        if self.alpha is not None:
            validate.real("alpha", self.alpha, 0.0, above=True)
        elif self.rank_stabilised:
            raise InvalidOptionError("rank_stabilised", True, "alpha to be set, which it scales")
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
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise InvalidOptionError("betas", self.betas, "two numbers")
        for beta in self.betas:
            if validate.real("betas", beta, 0.0, 1.0) == 1.0:
                raise InvalidOptionError("betas", self.betas, "two numbers below 1")
        object.__setattr__(self, "betas", tuple(self.betas))
        if self.resume and self.directory is None:
            raise InvalidOptionError("resume", True, "directory to be set, to resume from")

    @property
    def adapter_scale(self) -> float:
        """The factor that B's output is multiplied by."""
        if self.alpha is None:
            return self.scale
        return self.alpha / (math.sqrt(self.rank) if self.rank_stabilised else self.rank)


@dataclass(frozen=True, slots=True)
class TrainStep:
    """Report of one optimiser step, with the mean loss per token in nats.

    ``step`` counts from 1. ``tokens`` is the number of tokens that ran, without padding;
    ``learned`` is the number of tokens in the loss. ``gradient_norm`` is measured before clipping.
    ``validation_loss`` is the loss of the held-out examples, if this step measured it. ``steps`` is
    the maximum number of steps. ``peak_memory_bytes`` is the device's peak since training began,
    0 if unknown.
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
    """Iterator over training steps: reading a step runs it; `run` reads all of them.

    ``model`` is referenced until the training has ended, like the model of a stream. A run that is
    dropped before its first step has trained nothing, which is logged as a warning.
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
        """Train to the end. Return the report of the last step, or None if no step was left."""
        last = None
        for step in self:
            last = step
        return last

    def close(self) -> None:
        """Stop training; the model keeps the adapter as trained so far. Closing twice is fine."""
        self._is_untouched = False
        self._model = None
        if hasattr(self._steps, "close"):
            self._steps.close()

    def __del__(self) -> None:
        if getattr(self, "_is_untouched", False):
            import logging  # a program that logs nothing does without it

            logging.getLogger("core").warning(
                "train() was called but none of its steps was read, so nothing was trained. "
                "Read them: `for step in model.train(...)`, or `model.train(...).run()`."
            )
