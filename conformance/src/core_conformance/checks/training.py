"""Checks of training: that it learns, when it changes the model, what it leaves and refuses."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from core.errors import CoreError, ModelClosedError, TrainingError
from core.protocols import Capability, TextModel
from core.training import TrainConfig, TrainingExample, TrainingRun
from core_conformance.checking.ask import PLAIN, trainable
from core_conformance.checking.calls import raised
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.recall import long_story, relatives
from core_conformance.checking.said import BLANK, has_weights, must_be, must_differ, says
from core_conformance.checking.scratch import scratch
from core_conformance.checking.subject import Subject

_STEPS = 16
_FALLS = 0.01  # nats: what a loss falls by, at least, when the same is learned sixteen times
_FAR = 0.3  # a rate at which one step moves a model beyond any noise that it may have
_EXAMPLES = tuple(
    TrainingExample(prompt=prompt, completion=f" {answer}")
    for prompt, answer in zip(PLAIN[:2], PLAIN[2:4], strict=True)
)
_CONFIG = TrainConfig(
    rank=4, scale=4.0, learning_rate=1e-3, batch_size=2, iterations=_STEPS, num_layers=2, seed=1
)
_DICTIONARIES = tuple({"prompt": it.prompt, "completion": it.completion} for it in _EXAMPLES)
_NO_TEXT = TrainingExample()
_ONE_LABEL = tuple(TrainingExample(text=text, label="good") for text in PLAIN[:2])


@check(
    "training.loss",
    "The loss of the same examples, learned again and again, MUST fall; each step MUST be told "
    "with its number from 1, how many there will be, the rate, a finite loss, its tokens, those "
    "that are learned, and its seconds",
    Capability.TRAINABLE,
)
def loss_falls(subject: Subject) -> None:
    with subject.loaded() as model:
        begun = time.perf_counter()
        reports = [*_train(model)]
        elapsed = time.perf_counter() - begun
    numbers = [report.step for report in reports]
    must(numbers == [*range(1, _STEPS + 1)], f"{_STEPS} steps have the numbers {numbers}")
    for report in reports:
        sound = math.isfinite(report.loss) and 0 < report.learned <= report.tokens
        plan = (report.steps, report.learning_rate) == (_STEPS, _CONFIG.learning_rate)
        must(sound and plan and report.seconds >= 0, f"a step is reported as {report}")
    seconds = math.fsum(report.seconds for report in reports)
    must(seconds <= elapsed, f"steps of {seconds:g} s in all took {elapsed:g} s")
    losses = [report.loss for report in reports]
    fell = losses[0] - sum(losses[-2:]) / 2
    testable(fell > _FALLS or has_weights(subject, subject.model), BLANK)
    must(fell > _FALLS, f"the loss of {len(_EXAMPLES)} examples, learned again, went {losses}")


@check(
    "training.untouched",
    "A training that has taken no step MUST change nothing; the first step MUST",
    Capability.TRAINABLE,
)
def untouched(subject: Subject) -> None:
    with subject.loaded() as model:
        before = says(subject, model)
        steps = _train(model, replace(_CONFIG, learning_rate=_FAR))
        must_be(
            subject, before, partial(says, subject, model), "before the first step of a training"
        )
        next(steps)
        after = says(subject, model)
    must_differ(subject, before, after, "the output is the same before and after a step")


@check(
    "training.saved",
    "A training that is run to its end, on examples that are dictionaries, MUST be one that "
    "save_adapter() writes; that MUST load as adapter_path, with the same answers; without an "
    "adapter it MUST raise a TrainingError, and an OSError where it cannot be written",
    Capability.TRAINABLE,
    Capability.ADAPTERS,
)
def saved(subject: Subject) -> None:
    with scratch() as folder, subject.loaded() as model:
        place = os.path.join(folder, "adapter")
        error = raised(lambda: trainable(model).save_adapter(place))
        must(
            isinstance(error, TrainingError), f"save_adapter() without an adapter raised {error!r}"
        )

        run = trainable(model).train(_DICTIONARIES, _CONFIG)
        must(isinstance(run, TrainingRun), f"train() gave {run!r}, and no core.TrainingRun")
        last = run.run()
        must(last is not None and last.step == _STEPS, f"{_STEPS} steps were run to {last!r}")
        trainable(model).save_adapter(place)
        below = os.path.join(folder, "file", "adapter")
        open(os.path.join(folder, "file"), "wb").close()
        error = raised(lambda: trainable(model).save_adapter(below))
        must(isinstance(error, OSError), f"save_adapter() below a file raised {error!r}")
        trained = says(subject, model)
        with subject.loaded(adapter_path=place) as other:
            must_be(
                subject,
                trained,
                partial(says, subject, other),
                "an adapter that was trained and saved",
            )


@check(
    "training.kept",
    "State kept of earlier calls MUST NOT be used after a training",
    Capability.TRAINABLE,
)
def kept(subject: Subject) -> None:
    prompts = [*relatives(subject, "Once more")[:3], long_story(subject, "Again and again")]
    with subject.loaded() as fresh:
        [*_train(fresh)]
        wanted = says(subject, fresh, prompts)
    with subject.loaded() as model:
        says(subject, model, prompts)
        [*_train(model)]
        must_be(
            subject,
            wanted,
            partial(says, subject, model, prompts),
            "asked before a training and after",
        )


@check(
    "training.left",
    "A training that is left early MUST leave the model as its last step has made it: it answers, "
    "and can be trained again",
    Capability.TRAINABLE,
)
def left_early(subject: Subject) -> None:
    with subject.loaded() as model:
        steps = _train(model, replace(_CONFIG, learning_rate=_FAR))
        next(steps)
        outputs = says(subject, model)
        close = getattr(steps, "close", None)
        error = raised(close) if close else None
        must(error is None, f"close() of a training that runs raised {error!r}")
        must_be(subject, outputs, partial(says, subject, model), "after a training that was left")
        again = next(_train(model))
        must(again.step == 1, f"the first step of another training is reported as {again}")


@check(
    "training.again",
    "The same examples, options and seed MUST give the same losses",
    Capability.TRAINABLE,
)
def same_again(subject: Subject) -> None:
    losses = []
    for _ in range(2):
        with subject.loaded() as model:
            losses.append([report.loss for report in _train(model)])
    apart = max(abs(one - other) for one, other in zip(*losses, strict=True))
    most = max(subject.tolerance, 1e-3)
    must(apart <= most, f"two trainings of one seed differ in a loss by {apart:.2g}")


@check(
    "training.refused",
    "Anything but an example, examples that teach nothing, and unknown targets MUST "
    "raise a CoreError at the call, another config TypeError, and change nothing; every use of a "
    "closed model MUST raise ModelClosedError",
    Capability.TRAINABLE,
)
def refused(subject: Subject) -> None:
    with subject.loaded() as model:
        before = says(subject, model)
        wrong = replace(_CONFIG, targets=("no_such_projection",))
        for examples, config in (
            ((), _CONFIG),
            ((_NO_TEXT,), _CONFIG),
            (_ONE_LABEL, _CONFIG),
            ((*_EXAMPLES, PLAIN[0]), _CONFIG),
            ((*_EXAMPLES, {**_DICTIONARIES[0], "answer": "yes"}), _CONFIG),
            (_EXAMPLES, wrong),
        ):
            error = raised(lambda e=examples, c=config: trainable(model).train(e, c))  # type: ignore[misc]
            what = f"train({examples!r:.80}, targets={config.targets})"
            must(isinstance(error, CoreError), f"{what} raised {error!r}")
        for other in ({"rank": 4}, "fast"):
            error = raised(lambda c=other: trainable(model).train(_EXAMPLES, c))  # type: ignore[misc]
            must(
                isinstance(error, TypeError), f"train() with the config {other!r} raised {error!r}"
            )
        must_be(subject, before, partial(says, subject, model), "after trainings that were refused")
    with subject.loaded() as model:
        steps = _train(model)
        next(steps)
    with scratch() as folder:
        for what, use in {
            "train()": lambda: _train(model),
            "the next step": lambda: next(steps),
            "save_adapter()": lambda: trainable(model).save_adapter(os.path.join(folder, "a")),
        }.items():
            error = raised(use)
            must(isinstance(error, ModelClosedError), f"{what} of a closed model raised {error!r}")


def _train(
    model: TextModel,
    config: TrainConfig = _CONFIG,
    examples: Sequence[TrainingExample] = _EXAMPLES,
) -> TrainingRun:
    return trainable(model).train(examples, config)
