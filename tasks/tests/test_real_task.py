"""Tasks on a tiny checkpoint, through a backend: raw is plain classify, and all levels serve."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import core
import core_tasks
from core.errors import CalibrationError
from core.models.fingerprint import fingerprint, fingerprint_of
from tests.attacks.tiny_models import checkpoint

TEXTS = ["abc def", "def", "abc abc abc", "ghi abc", "def ghi def"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(tiny: Path) -> Iterator[Any]:
    with core.load_model(tiny, backend="mlx_cpu") as loaded:
        yield loaded


def test_raw_is_plain_classify(model: Any) -> None:
    labels = ("a", "bc", "the")
    task = core_tasks.Task("{text} is", labels)
    plain = model.classify([f"{text} is" for text in TEXTS], labels=labels)
    tolerance = model.info.logit_tolerance
    for decision, result in zip(task.classify(model, TEXTS), plain, strict=True):
        assert decision.error is None
        assert decision.label == result.label
        assert decision.logprobs == pytest.approx(result.logprobs, abs=2 * tolerance)
        assert decision.probabilities == pytest.approx(result.probabilities, abs=2 * tolerance)


def test_a_fitted_task_answers_the_same_alone_and_in_a_stream(model: Any, tiny: Path) -> None:
    labels, gold = ("a", "bc"), ["a", "bc", "bc", "a", "a"]
    task = (
        core_tasks.Task("{text} is", labels)
        .fit_prior(model, TEXTS, "batch")
        .fit(model, TEXTS, gold)
    )
    assert task.level == "batch+temperature"
    assert fingerprint_of(model) == fingerprint(tiny)
    together = task.classify(model, TEXTS)
    streamed = [*task.classify_iter(model, iter(TEXTS))]
    alone = [task.classify(model, [text])[0] for text in TEXTS]
    for one, two, three in zip(together, streamed, alone, strict=True):
        assert one.probabilities == pytest.approx(two.probabilities, abs=1e-3)
        assert one.probabilities == pytest.approx(three.probabilities, abs=1e-3)


def test_words_of_one_label_are_summed_by_their_tokens(model: Any) -> None:
    # Of these, "a b" goes on from "a" in tokens, and "abab" only in letters.
    words = {"one": ("a", "abab", "a b"), "two": ("c",)}
    task = core_tasks.Task("{text} is", ("one", "two"), words=words)
    flat = ("a", "abab", "a b", "c")
    [plain] = model.classify(["abc is"], labels=flat)
    [decision] = task.classify(model, ["abc"])
    # What any of the words gets, each text once, is what the two labels share.
    both = sum(math.exp(value) for value in (decision.logprobs or {}).values())
    assert both == pytest.approx(plain.label_mass, rel=1e-6)


def test_another_model_is_refused(model: Any, tmp_path: Path) -> None:
    task = core_tasks.Task("{text} is", ("a", "bc")).fit_prior(model, TEXTS, "batch")
    with (
        core.load_model(checkpoint(tmp_path, "qwen3"), backend="mlx_cpu") as other,
        pytest.raises(CalibrationError, match="fitted with model"),
    ):
        task.classify(other, TEXTS)
