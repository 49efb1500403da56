"""Names of other libraries that people try: each error says what there is instead."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

import core
import core_tasks
from core.kit.guesses import OF_MODELS
from core.testing import FakeModel
from core_tasks.guesses import OF_PACKAGE, OF_TASKS

TASK = core_tasks.Task("{text} is", ("a", "b"))


@pytest.mark.parametrize("name", vars(core)["_GUESSES"])
def test_a_guess_at_core(name: str) -> None:
    with pytest.raises(AttributeError, match=f"core has no '{name}': .*core"):
        getattr(core, name)


@pytest.mark.parametrize("name", OF_PACKAGE)
def test_a_guess_at_the_package_of_tasks(name: str) -> None:
    with pytest.raises(AttributeError, match=f"core_tasks has no '{name}': "):
        getattr(core_tasks, name)


@pytest.mark.parametrize("name", OF_TASKS)
def test_a_guess_at_a_task(name: str) -> None:
    with pytest.raises(AttributeError, match=f"Task has no '{name}': "):
        getattr(TASK, name)


@pytest.mark.parametrize("name", OF_MODELS)
def test_a_guess_at_a_model(name: str) -> None:
    with pytest.raises(AttributeError, match=f"FakeModel has no '{name}': "):
        getattr(FakeModel(), name)


def test_other_names_and_errors_within_properties_are_as_they_were() -> None:
    class Broken(FakeModel):
        @property
        def size(self) -> int:
            return len(self.nothing)  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'Task' object has no attribute 'lables'"):
        TASK.lables  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="'Broken' object has no attribute 'nothing'"):
        Broken().size  # noqa: B018
    assert not hasattr(FakeModel(), "train")
    assert copy.deepcopy(TASK) == pickle.loads(pickle.dumps(TASK)) == TASK


def test_a_task_is_loaded_by_its_class_as_well(tmp_path: Path) -> None:
    TASK.save(tmp_path / "task.toml")
    assert core_tasks.Task.load(tmp_path / "task.toml") == TASK
