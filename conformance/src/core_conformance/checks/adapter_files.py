"""Checks of adapters whose files change, and of handles of a model with load options."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

from core.extensions import Adapting, Trainable
from core.protocols import Capability, TextModel
from core.training import TrainConfig, TrainingExample
from core_conformance.checking import ask
from core_conformance.checking.adapters import adapters
from core_conformance.checking.ask import Answer, read, speak
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import same_answers
from core_conformance.checking.said import must_be, says
from core_conformance.checking.subject import Subject

_SMALL, _BEYOND = 32, 12  # positions of a context; tokens for which it has no place
_HOT = {"temperature": 1e4, "seed": 11}  # a model that ends at once continues then
_ENDS = "the model ends before its context is full: use one that continues"
_STEP = TrainConfig(rank=2, learning_rate=0.3, batch_size=1, iterations=1, num_layers=1)
_EXAMPLE = TrainingExample(prompt=ask.PLAIN[0], completion=f" {ask.PLAIN[1]}")


@check(
    "adapters.written-again",
    "An adapter that was replaced at its path MUST be read again, by a load and by with_adapter",
    Capability.ADAPTERS,
)
def replaced_files_are_read(subject: Subject) -> None:
    with adapters(subject) as paths, tempfile.TemporaryDirectory(prefix="core-adapter-") as folder:
        place = os.path.join(folder, os.path.basename(paths.one))
        wanted = []
        for path in (paths.one, paths.two):
            with subject.loaded(adapter_path=path) as model:
                wanted.append(says(subject, model))
        for path, own in zip((paths.one, paths.two), wanted, strict=True):
            _replace(place, path)
            for how, handle in _handles(subject, place):
                with handle as model:
                    what = f"{how} of an adapter that was replaced at its path"
                    must_be(subject, own, partial(says, subject, model), what)


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


@check(
    "adapting.options",
    "with_adapter MUST keep the load options of its model: the context, and its overflow",
    Capability.ADAPTING,
    Capability.ADAPTERS,
    Capability.ROTATE,
    ask.SPEAKING,
    Capability.SEED,
)
def load_options_are_kept(subject: Subject) -> None:
    options: dict[str, Any] = {"context_len": _SMALL, "context_overflow": "rotate"}
    with adapters(subject) as paths:
        with subject.loaded(adapter_path=paths.one, **options) as model:
            limit = model.info.context_length
            wanted = _beyond(subject, model, limit)
        with subject.loaded(**options) as base, _with(base, paths.one) as handle:
            must(
                handle.info.context_length == limit,
                f"a handle of a model with context_len={_SMALL} has a context of "
                f"{handle.info.context_length} tokens, and a load with that adapter {limit}",
            )
            answer = _beyond(subject, handle, limit)
    testable(len(wanted.tokens) > limit, _ENDS)
    must(
        len(answer.tokens) > limit or answer.finish_reason == "stop",
        f"a handle of a model with {options} ended after {len(answer.tokens)} tokens with "
        f"{answer.finish_reason!r}; a load with that adapter continued past its {limit} positions",
    )
    short = [Answer(one.tokens[:4], None) for one in (wanted, answer)]
    same_answers(subject, [(short[0], short[1])], "a load with an adapter, and a handle with it")


def _beyond(subject: Subject, model: TextModel, limit: int) -> Answer:
    return read(speak(subject, model, ask.PLAIN[0], max_tokens=limit + _BEYOND, **_HOT))


def _replace(place: str, path: str) -> None:
    """Replace an adapter by a copy of another."""
    if os.path.isdir(path):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(path, place, copy_function=shutil.copyfile)
    else:
        shutil.copyfile(path, place)


def _handles(subject: Subject, place: str) -> Iterator[tuple[str, Any]]:
    yield "a load", subject.loaded(adapter_path=place)
    if subject.declares(Capability.ADAPTING):
        yield "with_adapter", _handle(subject, place)


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
