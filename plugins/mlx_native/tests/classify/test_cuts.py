"""Micro-batches as a GPU has them: cut by what they cost, with empty rows where shapes are few."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_native import loaded
from core_mlx_native.backend import Cpu
from core_mlx_native.chosen import Choices, FastPaths, cuts, pass_tokens
from core_mlx_native.classify.microbatch import ClassifyTask
from core_mlx_native.classify.scheduler import MicroBatch, Scheduler
from core_mlx_native.decode.engine import MlxEngine
from core_mlx_native.model import MlxModel
from core_mlx_native.network.decoder import Decoder
from core_runtime.checkpoint.config import load_config
from core_runtime.cuts import Cuts

Checkpoint = Callable[..., Path]
FEW = Cuts(1, few_shapes=True)
TOLERANCE = 1e-4


@pytest.mark.parametrize(
    ("system", "head_dim", "few", "step", "why"),
    [
        ("Linux", 256, False, 4, "shapes are not planned"),
        ("Linux", 128, True, 16, "head size 128"),
        ("Linux", 64, True, 16, "head size 64"),
        ("Darwin", 256, False, 4, "shapes are not planned"),
        ("Darwin", 64, False, 4, "shapes are not planned"),
    ],
)
def test_shapes_are_few_where_a_gpu_plans_each(
    checkpoint: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    head_dim: int,
    few: bool,
    step: int,
    why: str,
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    config = replace(load_config(checkpoint()), head_dim=head_dim, hidden_size=1152)
    chosen = cuts(config, True, FastPaths())
    assert chosen is not None
    assert chosen.few_shapes == few
    assert chosen.cost >= 32
    assert chosen.cost == pass_tokens(config, True) or not few
    length_step = Choices.of(core.LoadConfig(), True, config).length_step
    assert length_step.value == step
    assert why in length_step.choice.reason


def test_a_cpu_fills_each_micro_batch(checkpoint: Checkpoint) -> None:
    config = load_config(checkpoint())
    assert cuts(config, False, FastPaths()) is None
    assert Choices.of(core.LoadConfig(), False, config).length_step.value == 1


@pytest.mark.parametrize("path", ["cuts", "sorted"])
def test_cuts_can_be_switched_off(checkpoint: Checkpoint, path: str) -> None:
    fast = FastPaths.of(core.LoadConfig(options={"without": path}))
    assert cuts(load_config(checkpoint()), True, fast) is None


# ------------------------------------------------------------------------------- results

TEXTS = [f"{'a b c d e f g h'[: 2 * (index % 7) + 1]} {'abc'[index % 3]}" for index in range(21)]
SHARED = ["ab c " * 8 + text for text in TEXTS]
LABELS = ("a", "b", "ab cab")  # one of several tokens


def shapes_of(monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, ...]]:
    """Note the shape of every pass of whole prompts."""
    shapes: set[tuple[int, ...]] = set()
    real = Decoder.__call__

    def watched(self: Decoder, tokens: Any, *rest: Any, **named: Any) -> Any:
        shapes.add(tuple(tokens.shape))
        return real(self, tokens, *rest, **named)

    monkeypatch.setattr(Decoder, "__call__", watched)
    return shapes


def opened(directory: Path, monkeypatch: pytest.MonkeyPatch, asked: Cuts | None) -> MlxModel:
    """A model on the CPU, with the micro-batches of a GPU if ``asked``."""
    monkeypatch.setattr(loaded, "cuts", lambda *_: asked)
    options = {"token_budget": 128, "length_step": 4}
    return Cpu().load_model(directory, core.LoadConfig(options=options))


@pytest.mark.parametrize("asked", [Cuts(8), FEW], ids=["any", "few"])
@pytest.mark.parametrize("texts", [TEXTS, SHARED], ids=["alone", "prefix"])
def test_results_are_those_of_filled_micro_batches(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, asked: Cuts, texts: Sequence[str]
) -> None:
    directory = checkpoint()
    with opened(directory, monkeypatch, None) as model:
        wanted = model.classify(texts, labels=LABELS)
        scores = model.score(texts, [" a b"] * len(texts))
        texts_behind = [each.text for each in model.batch_generate(texts, max_tokens=4)]
    with opened(directory, monkeypatch, asked) as model:
        found = model.classify(texts, labels=LABELS)
        assert model.metrics.cached_prompt_tokens > 0 or texts is TEXTS
        assert not any(result.error for result in found)
        for result, other in zip(found, wanted, strict=True):
            assert (result.label, result.token) == (other.label, other.token)
            assert result.logprobs == pytest.approx(other.logprobs, abs=TOLERANCE)
        for score, same in zip(model.score(texts, [" a b"] * len(texts)), scores, strict=True):
            assert score.token_logprobs == pytest.approx(same.token_logprobs, abs=TOLERANCE)
        assert [each.text for each in model.batch_generate(texts, max_tokens=4)] == texts_behind


def test_rows_of_a_pass_are_a_power_of_two_and_none_is_answered_twice(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = shapes_of(monkeypatch)
    with opened(checkpoint(), monkeypatch, FEW) as model:
        assert len(model.classify(TEXTS, labels=("a", "b"))) == len(TEXTS)
    assert shapes
    assert all(rows & (rows - 1) == 0 for rows, _ in shapes)
    assert all(rows * length <= 128 for rows, length in shapes)


def test_rows_that_weigh_as_much_as_their_logits_run_by_length_too(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU: all weigh the same, and each micro-batch would be as long as the longest of all."""
    monkeypatch.setattr(ClassifyTask, "row_tokens", 32)
    lengths: list[list[int]] = []
    real = Scheduler._compute

    def noted(self: Scheduler[Any, Any, Any], batch: MicroBatch[Any]) -> Any:
        lengths.append([len(row.ids) for row in batch.rows])
        return real(self, batch)

    monkeypatch.setattr(Scheduler, "_compute", noted)
    options = {"token_budget": 128, "without": ["prefix"]}
    with Cpu().load_model(checkpoint(), core.LoadConfig(options=options)) as model:
        model.classify(["abc"[index % 3] * (1 + index * 7 % 20) for index in range(40)])
    assert len(lengths) == 10
    assert max(max(rows) - min(rows) for rows in lengths) <= 3


def test_the_engine_prefills_prompts_of_like_length_together(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a long one with many short ones, where that costs more than another pass."""
    groups: list[list[int]] = []
    real = MlxEngine._prefilling

    def noted(self: MlxEngine, jobs: Sequence[Any], prefixes: Sequence[Any]) -> Any:
        groups.append([len(job.ids) for job in jobs])
        return real(self, jobs, prefixes)

    monkeypatch.setattr(MlxEngine, "_prefilling", noted)
    with opened(checkpoint(), monkeypatch, Cuts(8)) as model:
        model.batch_generate(["a b c d e f g h " * 3, "a", "b", "c"], max_tokens=1)
    assert all(min(group) > 20 or max(group) < 10 for group in groups)
