"""Checks of adapters whose files change, and of handles of a model with load options."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

from core.extensions import Adapting, Trainable
from core.protocols import Capability, TextModel
from core.training import TrainConfig, TrainingExample
from core_conformance.checking import ask
from core_conformance.checking.check import check
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
