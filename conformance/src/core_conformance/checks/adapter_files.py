"""Checks of adapters whose files change, and of handles of a model with load options."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import cast

from core.extensions import Adapting, Trainable
from core.protocols import Capability, TextModel
from core.training import TrainConfig, TrainingExample
from core_conformance.checking import ask
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.said import must_be, says
from core_conformance.checking.subject import Subject

_STEP = TrainConfig(rank=2, learning_rate=0.3, batch_size=1, iterations=1, num_layers=1)
_EXAMPLE = TrainingExample(prompt=ask.PLAIN[0], completion=f" {ask.PLAIN[1]}")


@check(
    "training.saved-again",
    "save_adapter() to the directory of an earlier adapter MUST replace that one for later loads",
    Capability.TRAINABLE,
    Capability.ADAPTERS,
)
def saved_again(subject: Subject) -> None:
    with tempfile.TemporaryDirectory(prefix="core-trained-") as folder, subject.loaded() as loaded:
        model, place = cast("Trainable", loaded), os.path.join(folder, "adapter")
        for _ in range(2):
            model.train([_EXAMPLE], _STEP).run()
            model.save_adapter(place)
            trained = says(subject, loaded)
            with subject.loaded(adapter_path=place) as other:
                what = "an adapter that was saved to a directory again"
                must_be(subject, trained, partial(says, subject, other), what)


@contextmanager
def _handle(subject: Subject, place: str) -> Iterator[TextModel]:
    with _with(subject.model, place) as handle:
        yield handle


def _with(model: TextModel, path: str | None) -> TextModel:
    return cast("Adapting", model).with_adapter(path)


@check(
    "training.continues",
    "A second training MUST begin with the adapter of the first, not with a new one",
    Capability.TRAINABLE,
)
def second_trainings_continue(subject: Subject) -> None:
    with subject.loaded() as loaded:
        run = cast("Trainable", loaded).train([_EXAMPLE], replace(_STEP, iterations=2))
        first, second = (step.loss for step in run)
    with subject.loaded() as loaded:
        model = cast("Trainable", loaded)
        losses = [step.loss for _ in range(2) for step in model.train([_EXAMPLE], _STEP)]
    testable(abs(first - second) > 1e-2, "a step changes no loss: use a model with weights")
    must(
        abs(losses[1] - second) < abs(losses[1] - first),
        f"two trainings of a step each have the losses {losses}, and one of two steps "
        f"{[first, second]}: the second began anew",
    )
