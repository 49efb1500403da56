"""Checks of the state that a training leaves, seen through every operation; and of its counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from core.extensions import Trainable
from core.protocols import Capability, TextModel
from core.training import TrainConfig, TrainingExample, TrainStep
from core_conformance.checking.ask import LABELS, PLAIN
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import asked, run, same_rows
from core_conformance.checking.ways.table import Way, ways

_ROWS, _TOKENS = 3, 4
_EXAMPLES = tuple(
    TrainingExample(prompt=prompt, completion=f" {answer}")
    for prompt, answer in zip(PLAIN[:2], PLAIN[2:4], strict=True)
)
_CONFIG = TrainConfig(
    rank=4, scale=4.0, learning_rate=0.3, batch_size=2, iterations=2, num_layers=2, seed=1
)
_TEMPLATE = "It is said: {text}"
_PREFIXES = ("", "\n", " -> ")
_PER_TOKEN = 4  # tolerances: a log-probability is a difference of logits, and two are compared


@check(
    "training.kept-ways",
    "Every operation MUST answer with the weights after the last step, also what it was asked "
    "before",
    Capability.TRAINABLE,
    broad=True,
)
def no_operation_keeps_old_weights(subject: Subject) -> None:
    for way in ways(subject):
        with subject.loaded() as fresh:
            cast("Trainable", fresh).train(_EXAMPLES, _CONFIG).run()
            wanted = _rows(subject, way, fresh)
        with subject.loaded() as model:
            _rows(subject, way, model)
            for _ in cast("Trainable", model).train(_EXAMPLES, _CONFIG):
                between = _rows(subject, way, model)  # with the weights of every step
            same_rows(subject, wanted, between, f"{way.name}, asked before a training and after")


@check(
    "training.dropout",
    "After a training with dropout no input of the adapter is dropped: what is asked twice MUST "
    "be answered alike",
    Capability.TRAINABLE,
    broad=True,
)
def dropout_ends_with_the_training(subject: Subject) -> None:
    with subject.loaded() as model:
        cast("Trainable", model).train(_EXAMPLES, replace(_CONFIG, dropout=0.5)).run()
        for way in ways(subject):
            wanted, again = (_rows(subject, way, model) for _ in range(2))
            same_rows(subject, wanted, again, f"{way.name}, asked twice after a training")


@check(
    "training.tokens",
    "A step MUST count the tokens of its examples without padding: as many as they are alone",
    Capability.TRAINABLE,
)
def padding_is_not_counted(subject: Subject) -> None:
    short, long = _EXAMPLES[0], TrainingExample(prompt=PLAIN[1], completion=" ".join(PLAIN))
    with subject.loaded() as model:
        alone = [_step(model, [example]) for example in (short, long)]
        both = _step(model, [short, long], batch_size=2)
    for name in ("tokens", "learned"):
        counts = [getattr(step, name) for step in alone]
        must(
            getattr(both, name) == sum(counts),
            f"a step of two examples reports {name}={getattr(both, name)}, and steps of one "
            f"example {counts}",
        )


@check(
    "training.label-prefix",
    "A label MUST be learned after label_prefix, where classify reads it with that prefix",
    Capability.TRAINABLE,
    Capability.CLASSIFY,
    Capability.LABELS,
    broad=True,
)
def labels_follow_their_prefix(subject: Subject) -> None:
    with subject.loaded() as model:
        for prefix in _PREFIXES:
            text, label = PLAIN[0], LABELS[0]
            options: dict[str, Any] = {"labels": LABELS, "label_prefix": prefix}
            (row,) = model.classify([_TEMPLATE.replace("{text}", text)], **options)
            nats = -(row.raise_for_error().logprobs or {})[label]
            example = TrainingExample(text=text, label=label)
            step = _step(model, [example], template=_TEMPLATE, **options)
            most = _PER_TOKEN * subject.tolerance * step.learned
            must(
                abs(step.loss * step.learned - nats) <= most,
                f"with label_prefix={prefix!r} the label {label!r} was learned at "
                f"{step.loss * step.learned:.6g} nats in {step.learned} tokens, and classify() "
                f"reads {nats:.6g}",
            )


def _rows(subject: Subject, way: Way, model: TextModel) -> list[Any]:
    return run(subject, way, model, asked(1 if way.single else _ROWS), _TOKENS)


def _step(model: TextModel, examples: Sequence[TrainingExample], **options: Any) -> TrainStep:
    """Return the only step of a training that changes no weight."""
    config = replace(_CONFIG, learning_rate=1e-9, iterations=1, **{"batch_size": 1, **options})
    (step,) = cast("Trainable", model).train(examples, config)
    return step
