"""Checks of the steps of a training, its checkpoints, and what it leaves in the model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any, cast

from core.extensions import Trainable
from core.protocols import Capability, TextModel
from core.training import TrainConfig, TrainingExample, TrainStep
from core_conformance.checking.ask import LABELS, PLAIN, trainable
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import asked, run, same_rows
from core_conformance.checking.ways.table import Way, ways

_STILL, _FAR = 1e-9, 1e-2  # rates at which nothing moves, and at which a loss moves beyond noise
_CONFIG = TrainConfig(
    rank=4, scale=4.0, learning_rate=_FAR, batch_size=1, iterations=4, num_layers=2, seed=1
)
_EXAMPLES = tuple(
    TrainingExample(prompt=prompt, completion=f" {text}") for prompt, text in pairwise(PLAIN[:4])
)
_PER_TOKEN = 4  # tolerances: a log-probability is a difference of logits, and two are compared
_THREE: tuple[dict[str, Any], ...] = ({"batch_size": 3}, {"batch_size": 1, "accumulate": 3})
_NEAR = 1e-6  # of a rate
_END = 0.25  # of the fall that a cosine may have left at the last step


@check(
    "training.rates",
    "The rate that a step reports MUST rise over the first warmup steps, and then be "
    "learning_rate, or fall along a cosine to final_learning_rate",
    Capability.TRAINABLE,
)
def rates(subject: Subject) -> None:
    warmup, final, many = 2, _STILL / 10, 7
    with subject.loaded() as model:
        for schedule in ("constant", "cosine"):
            seen = _rates(model, schedule=schedule, warmup=warmup, final_learning_rate=final)
            rise, rest = seen[:warmup], seen[warmup:]
            what = f"schedule={schedule!r} with warmup={warmup} over {many} steps has {seen}"
            must(
                0 < rise[0] < rise[1] <= _STILL * (1 + _NEAR),
                f"{what}: the first {warmup} do not rise to {_STILL}",
            )
            if schedule == "constant":
                steady = all(abs(rate - _STILL) <= _NEAR * _STILL for rate in rest)
                must(steady, f"{what}: after the first {warmup} all are {_STILL}")
            else:
                falls = all(one > other for one, other in pairwise(rest))
                most = final + _END * (_STILL - final)
                must(falls and final <= rest[-1] <= most, f"{what}: it falls to {final}")


@check(
    "training.accumulated",
    "A step of several accumulated batches MUST learn from all of them, as from one batch of as "
    "many examples",
    Capability.TRAINABLE,
)
def accumulated(subject: Subject) -> None:
    with subject.loaded() as model:
        many, one = (
            _train(model, learning_rate=_STILL, iterations=1, **options)[0] for options in _THREE
        )
    must(
        (one.learned, one.tokens) == (many.learned, many.tokens),
        f"a step with accumulate=3 is reported as {one}, and one with batch_size=3 as {many}",
    )
    _same_loss(subject, many, one, "a step of three examples, and of three batches")


@check(
    "training.validated",
    "validation_loss MUST be the loss of the held-out examples, at every validate_every-th step "
    "and the last, and None at the others",
    Capability.TRAINABLE,
)
def validated(subject: Subject) -> None:
    held_out = _EXAMPLES[2:]
    still: Any = {"learning_rate": _STILL}
    with subject.loaded() as model:
        own = next(trainable(model).train(held_out, replace(_CONFIG, iterations=1, **still)))
        options: Any = {"validation": held_out, "validate_every": 2, "iterations": 5}
        steps = _train(model, **still, **options)
    measured = [step.step for step in steps if step.validation_loss is not None]
    must(measured == [2, 4, 5], f"of 5 steps with validate_every=2 {measured} have a loss")
    for step in steps:
        if step.validation_loss is not None:
            other = replace(own, loss=step.validation_loss)
            _same_loss(subject, own, other, "an example that is learned, and the same held out")


@check(
    "training.continued",
    "A training MUST continue the adapter that is there: its first loss is the one after the last "
    "step of the training before",
    Capability.TRAINABLE,
)
def continued(subject: Subject) -> None:
    with subject.loaded() as model:
        whole = _train(model, examples=_EXAMPLES[:1], iterations=3)
    with subject.loaded() as model:
        _train(model, examples=_EXAMPLES[:1], iterations=2)
        again = _train(model, examples=_EXAMPLES[:1], iterations=1)
    _same_loss(subject, whole[2], again[0], "the third step, and the first after two")


@check(
    "training.resumed",
    "With a directory, a training that was broken off MUST be resumed after its last checkpoint, "
    "with the losses of one that was not",
    Capability.TRAINABLE,
)
def resumed(subject: Subject) -> None:
    with subject.loaded() as model:
        whole = _train(model)
    with tempfile.TemporaryDirectory(prefix="core-trained-") as folder:
        place = os.path.join(folder, "run")
        config = replace(_CONFIG, directory=place, save_every=1)
        with subject.loaded() as model, closing(trainable(model).train(_EXAMPLES, config)) as run:
            begun = list(islice(run, 2))
        with subject.loaded() as model:
            rest = list(trainable(model).train(_EXAMPLES, replace(config, resume=True)))
    numbers = [step.step for step in (*begun, *rest)]
    must(numbers == [1, 2, 3, 4], f"two steps, and those after resume=True, are {numbers}")
    for one, other in zip(whole, (*begun, *rest), strict=True):
        _same_loss(subject, one, other, f"step {one.step} of a training, and of one resumed")


def _rates(model: TextModel, **options: Any) -> list[float]:
    steps = _train(model, learning_rate=_STILL, iterations=7, **options)
    return [step.learning_rate for step in steps]


def _train(
    model: TextModel, examples: tuple[TrainingExample, ...] = _EXAMPLES, **options: Any
) -> list[TrainStep]:
    return list(trainable(model).train(examples, replace(_CONFIG, **options)))


def _same_loss(subject: Subject, one: TrainStep, other: TrainStep, what: str) -> None:
    must(
        one.learned > 0 and abs(one.loss - other.loss) <= max(1e-3, _PER_TOKEN * subject.tolerance),
        f"{what}: the losses are {one.loss:.6g} and {other.loss:.6g}",
    )


_ROWS, _TOKENS = 3, 4
_LEARNED = tuple(
    TrainingExample(prompt=prompt, completion=f" {answer}")
    for prompt, answer in zip(PLAIN[:2], PLAIN[2:4], strict=True)
)
_STEPS = TrainConfig(
    rank=4, scale=4.0, learning_rate=0.3, batch_size=2, iterations=2, num_layers=2, seed=1
)
_TEMPLATE = "It is said: {text}"
_PREFIXES = ("", "\n", " -> ")


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
            cast("Trainable", fresh).train(_LEARNED, _STEPS).run()
            wanted = _rows(subject, way, fresh)
        with subject.loaded() as model:
            _rows(subject, way, model)
            for _ in cast("Trainable", model).train(_LEARNED, _STEPS):
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
        cast("Trainable", model).train(_LEARNED, replace(_STEPS, dropout=0.5)).run()
        for way in ways(subject):
            wanted, again = (_rows(subject, way, model) for _ in range(2))
            same_rows(subject, wanted, again, f"{way.name}, asked twice after a training")


@check(
    "training.tokens",
    "A step MUST count the tokens of its examples without padding: as many as they are alone",
    Capability.TRAINABLE,
)
def padding_is_not_counted(subject: Subject) -> None:
    short, long = _LEARNED[0], TrainingExample(prompt=PLAIN[1], completion=" ".join(PLAIN))
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
    config = replace(_STEPS, learning_rate=1e-9, iterations=1, **{"batch_size": 1, **options})
    (step,) = cast("Trainable", model).train(examples, config)
    return step
