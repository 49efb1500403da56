"""Checks of what a handle keeps of its model, and of what it must not keep: an old adapter."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import cast

from core.extensions import Adapting, Trainable
from core.protocols import Capability, TextModel
from core.training import TrainConfig, TrainingExample
from core_conformance.checking import ask
from core_conformance.checking.adapters import adapters
from core_conformance.checking.ask import read, speaks
from core_conformance.checking.calls import raised
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.said import Said, must_be, must_differ, says
from core_conformance.checking.subject import Subject

_SMALL = 32  # positions
_LARGE = 256  # more would take too long to fill
_BEYOND = 4  # tokens that do not fit into the context
_NONE, _OTHER = "with_adapter(None) of a trained model", "another handle of an adapter"
_EXAMPLES = tuple(
    TrainingExample(prompt=prompt, completion=f" {answer}")
    for prompt, answer in zip(ask.PLAIN[:2], ask.PLAIN[2:4], strict=True)
)
_CONFIG = TrainConfig(
    rank=2, scale=4.0, learning_rate=0.3, batch_size=2, iterations=1, num_layers=2
)


@check(
    "adapters.rewritten",
    "An adapter whose files were replaced MUST be read again: by a load, and by with_adapter()",
    Capability.ADAPTERS,
)
def replaced_files_are_read_again(subject: Subject) -> None:
    ways: list[Callable[[str], TextModel]] = [lambda path: subject.load(adapter_path=path)]
    if subject.declares(Capability.ADAPTING):
        ways.append(cast("Adapting", subject.model).with_adapter)
    with adapters(subject) as paths, tempfile.TemporaryDirectory(prefix="core-adapters-") as folder:
        for number, way in enumerate(ways):
            place = Path(folder, str(number), Path(paths.one).name)
            outputs: list[Said] = []
            for source in (paths.one, paths.two):
                _copy(Path(source), place)
                with way(str(place)) as model:
                    outputs.append(says(subject, model))
            first, second = outputs
            what = "an adapter says the same after its files were replaced"
            must_differ(subject, first, second, what)


@check(
    "adapting.refused",
    "with_adapter() that fails MUST leave a model with the adapter that it has",
    Capability.ADAPTING,
    Capability.ADAPTERS,
)
def failing_leaves_the_adapter(subject: Subject) -> None:
    with adapters(subject) as paths, subject.loaded(adapter_path=paths.one) as model:
        before = says(subject, model)
        for path in (paths.wrong, f"{paths.wrong}-is-not-there"):
            raised(lambda path=path: _with(model, path).close())  # type: ignore[misc]
            must_be(subject, before, partial(says, subject, model), f"after with_adapter({path!r})")


@check(
    "adapting.options",
    "A handle MUST keep the load options of its model: its context, and what follows its end",
    Capability.ADAPTING,
    Capability.ADAPTERS,
    Capability.ROTATE,
    Capability.GENERATE,
)
def handles_keep_load_options(subject: Subject) -> None:
    speaks(subject, Capability.GENERATE)
    options = {"context_len": _SMALL, "context_overflow": "rotate"}
    with adapters(subject) as paths, subject.loaded(**options) as model:
        limit = model.info.context_length
        testable(limit <= _LARGE, f"a context of {limit} tokens takes too long to fill")
        for path in (paths.one, None):
            with _with(model, path) as handle:
                must(
                    handle.info.context_length == limit,
                    f"the context of a handle holds {handle.info.context_length} tokens, and "
                    f"that of its model {limit}",
                )
                answers = [
                    read(handle.generate(prompt, max_tokens=limit + _BEYOND))
                    for prompt in ask.PLAIN[:2]
                ]
                must(
                    all(
                        len(answer.tokens) == limit + _BEYOND or answer.finish_reason == "stop"
                        for answer in answers
                    ),
                    f"a handle of a model that rotates its context of {limit} ended after "
                    f"{[len(answer.tokens) for answer in answers]} tokens",
                )


@check(
    "adapting.trained",
    "A training MUST change its own model alone: no handle of one adapter, and none without",
    Capability.ADAPTING,
    Capability.ADAPTERS,
    Capability.TRAINABLE,
)
def training_changes_one_handle(subject: Subject) -> None:
    plain = says(subject, subject.model)
    with tempfile.TemporaryDirectory(prefix="core-trained-") as folder, subject.loaded() as base:
        # An adapter that a training with these options continues.
        cast("Trainable", base).train(_EXAMPLES, _CONFIG).run()
        path = str(Path(folder, "adapter"))
        cast("Trainable", base).save_adapter(path)
        with _with(base, None) as none:
            must_be(subject, plain, partial(says, subject, none), f"{_NONE} without an adapter")
        with _with(base, path) as one, _with(base, path) as trained:
            wanted = says(subject, one)
            cast("Trainable", trained).train(_EXAMPLES, _CONFIG).run()
            with _with(trained, None) as none:
                must_be(subject, plain, partial(says, subject, none), _NONE)
            must_be(subject, wanted, partial(says, subject, one), f"{_OTHER} that was trained")
            with _with(base, path) as again:
                must_be(subject, wanted, partial(says, subject, again), f"{_OTHER}, read again")


def _copy(source: Path, place: Path) -> None:
    """Put a copy of a file or a directory in the place of what is there."""
    if source.is_dir():
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)


def _with(model: TextModel, path: str | None) -> TextModel:
    return cast("Adapting", model).with_adapter(path)


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
    with _adapted(subject.model, place) as handle:
        yield handle


def _adapted(model: TextModel, path: str | None) -> TextModel:
    return cast("Adapting", model).with_adapter(path)
