"""The tolerance that is stated, and the moves of logits that it is about."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core_llama_cpp.library import TILED, tiled_products
from core_llama_cpp.tolerance import EXACT, FLOATS, ROUNDED

PROMPT, OTHERS = "The weather today is nice and", ["word " * 40, "1 2 3 4 5", "x"]


def load(path: Path, slots: int, **options: Any) -> core.TextModel:
    """The model on one thread, which keeps nothing between calls."""
    fixed = {"n_threads": 1, "prefix_cache": 0} | options
    return core.load_model(path, backend="llama_cpp", parallel_slots=slots, options=fixed)


def logprobs(model: core.TextModel, disturb: Callable[[int], object]) -> list[tuple[int, float]]:
    """The ids and log-probabilities of forty tokens, each behind something else that ran."""
    found: list[tuple[int, float]] = []
    for token in model.generate(PROMPT, max_tokens=40, return_logprobs=True):
        disturb(len(found))
        found.append((token.id, token.logprob or 0.0))
    return found


def moves(one: list[tuple[int, float]], other: list[tuple[int, float]]) -> list[float]:
    """How far log-probabilities moved, as long as both continue the same tokens.

    The first tokens that differ are each the best of one distribution, so they count; behind them
    stand two other texts, whose distributions have nothing to do with each other.
    """
    found: list[float] = []
    for (id_, logprob), (other_id, other_logprob) in zip(one, other, strict=True):
        found.append(abs(logprob - other_logprob))
        if id_ != other_id:
            break
    return found


def test_on_one_thread_a_stream_stays_what_it_is_whatever_is_classified(
    smollm2_gguf: Path,
) -> None:
    with load(smollm2_gguf, 1) as model:
        assert model.info.logit_tolerance == EXACT
        alone = logprobs(model, lambda place: None)
        beside = logprobs(model, lambda place: model.classify(OTHERS[: place % 4]))
        assert [id_ for id_, _ in beside] == [id_ for id_, _ in alone]
        assert max(moves(alone, beside)) <= 2 * EXACT


def test_with_several_slots_cells_lie_in_another_order(smollm2_gguf: Path) -> None:
    """Why no more is stated there: rows that end leave cells in front of those that go on."""
    with load(smollm2_gguf, 2) as model:
        assert model.info.logit_tolerance == ROUNDED
        alone = logprobs(model, lambda place: None)

        def speak(place: int) -> None:
            list(model.generate(OTHERS[place % 3], max_tokens=1 + place % 5))

        beside = logprobs(model, speak)
        assert 2 * EXACT < max(moves(alone, beside)) < ROUNDED


@pytest.mark.parametrize(
    ("slots", "options", "tolerance"),
    [(1, {}, FLOATS), (2, {}, FLOATS), (1, {"n_ubatch": 64}, ROUNDED)],
)
def test_a_model_of_floats(
    tiny_gguf: Callable[..., Path], slots: int, options: dict[str, Any], tolerance: float
) -> None:
    with load(tiny_gguf(), slots, **options) as model:
        assert model.info.logit_tolerance == tolerance


@pytest.mark.parametrize(
    ("value", "tiled"),
    [(None, True), ("1", True), ("2x", True), ("0", False), ("", False), ("off", False)],
)
def test_tiled_products_are_asked_for_as_ggml_reads_it(
    monkeypatch: pytest.MonkeyPatch, value: str | None, tiled: bool
) -> None:
    monkeypatch.delenv(TILED, raising=False)
    if value is not None:
        monkeypatch.setenv(TILED, value)
    assert tiled_products() is tiled


def test_tiled_products_are_off_unless_the_environment_asks(tiny_gguf: Callable[..., Path]) -> None:
    code = (
        "import sys, core\n"
        "slots = {'parallel_slots': 1, 'options': {'n_threads': 1}}\n"
        "with core.load_model(sys.argv[1], backend='llama_cpp', **slots) as model:\n"
        "    print(model.info.logit_tolerance)\n"
    )
    path = str(tiny_gguf())
    environment = {name: value for name, value in os.environ.items() if name != TILED}
    for more, tolerance in (({}, FLOATS), ({TILED: "1"}, ROUNDED), ({TILED: "0"}, FLOATS)):
        run = subprocess.run(
            [sys.executable, "-c", code, path],
            env=environment | more,
            capture_output=True,
            text=True,
            check=True,
        )
        assert float(run.stdout) == tolerance
