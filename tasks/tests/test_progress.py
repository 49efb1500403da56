"""Progress of the calls that run prompts, and their results, which are those without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from core.options import GenerateConfig
from core.testing import FakeModel
from core_learn import FewShot
from core_tasks import Task, tune

TEXTS = [f"{'a ' * (1 + n % 4)}{'b ' * (n % 3)}{n}" for n in range(30)]
GOLD = ["ab"[n % 2] for n in range(30)]
Seen = list[tuple[int, int]]


def likely(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    counts = [prompt.count(label) + 1 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


def tuned(model: FakeModel, progress: Callable[[int, int], None] | None) -> object:
    tasks = [Task("{text} is", ("a", "b")), Task("b b {text} is", ("a", "b"))]
    tuning = tune(model, tasks, TEXTS, GOLD, progress=progress)
    return tuning.best, tuning.expected


def classified(model: FakeModel, progress: Callable[[int, int], None] | None) -> object:
    return Task("{text} is", ("a", "b")).classify(model, TEXTS, progress=progress)


def fitted(model: FakeModel, progress: Callable[[int, int], None] | None) -> object:
    return Task("{text} is", ("a", "b")).fit(model, TEXTS, GOLD, progress=progress)


def learned(model: FakeModel, progress: Callable[[int, int], None] | None) -> object:
    return FewShot(model).fit(TEXTS, GOLD, progress=progress).head.weights.tolist()


@pytest.mark.parametrize(
    ("work", "total"), [(classified, 30), (fitted, 30), (tuned, 104), (learned, 33)]
)
def test_every_prompt_is_counted_once_and_nothing_else_changes(
    work: Callable[[FakeModel, Callable[[int, int], None] | None], object], total: int
) -> None:
    model, seen = FakeModel(labels=likely), Seen()
    assert work(model, lambda *counts: seen.append(counts)) == work(model, None)
    assert seen[0] == (0, total)
    assert seen[1] == (8, total)
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


def test_a_timeout_is_of_all_blocks_together() -> None:
    model, config = FakeModel(labels=likely), GenerateConfig(timeout=100.0)
    Task("{text} is", ("a", "b")).classify(model, TEXTS, config, progress=lambda *_: None)
    timeouts = [call.config.timeout or 0.0 for call in model.calls]
    assert timeouts == sorted(timeouts, reverse=True)
    assert 0 < timeouts[-1] < timeouts[0] <= 100.0
