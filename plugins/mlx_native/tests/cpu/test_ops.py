"""The operations of a device: chosen at load, held by every part of the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from core.kit.base import Check, never_stop
from core.options import LoadConfig
from core_mlx_native.cpu import lanes
from core_mlx_native.cpu import ops as cpu_ops
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.loaded import load, load_decoder
from core_mlx_native.network.ops import Ops
from plugins.mlx_native.tests.network.logits import last_logits

ONE_TOKEN, MANY = mx.ones((1, 1, 8)), mx.ones((4, 32, 8))  # [B, T, H]


@pytest.mark.parametrize(
    ("options", "with_numpy"),
    [({}, True), ({"without": ["host_math"]}, False), ({"dtype": "bfloat16"}, False)],
    ids=["default", "without host_math", "bfloat16"],
)
def test_a_cpus_are_chosen_at_load(
    checkpoint: Callable[..., Path], options: dict[str, Any], with_numpy: bool
) -> None:
    """numpy has no bfloat16."""
    decoder = load(checkpoint(), LoadConfig(options=options), on_gpu=False).decoder
    assert isinstance(decoder.ops, CpuOps)
    assert decoder.ops.with_numpy == with_numpy


def test_a_gpus_are_mlxs_own(checkpoint: Callable[..., Path]) -> None:
    assert type(load(checkpoint(), LoadConfig(), on_gpu=True).decoder.ops) is Ops


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3"])
def test_every_part_of_the_network_holds_them(checkpoint: Callable[..., Path], family: str) -> None:
    """One that did not would have no lane, or no numpy."""
    ops = CpuOps()
    decoder = load_decoder(checkpoint(family), ops=ops)
    parts = [part for part in decoder.modules() if hasattr(part, "_ops")]  # type: ignore[no-untyped-call]
    assert len(parts) > 10 * len(decoder.layers)
    assert all(part._ops is ops for part in parts)


def computed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is handed to mx.eval."""
    found: list[object] = []
    monkeypatch.setattr(mx, "eval", found.append)
    return found


def test_what_a_lane_computes_is_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = computed(monkeypatch)
    ops = CpuOps()

    def job(check: Check) -> None:
        ops.settled(MANY)
        Ops().settled(MANY)

    ops.settled(MANY)
    assert not evaluated
    lanes.run([job], never_stop)
    assert evaluated == [MANY]


@pytest.mark.parametrize(
    ("ops", "x", "waits"),
    [
        (CpuOps(), MANY, True),
        (CpuOps(), ONE_TOKEN, False),  # a step of decoding is short
        (CpuOps(with_numpy=True), MANY, False),  # numpy has waited for it
        (Ops(), MANY, False),  # on a GPU it is queued
    ],
    ids=["cpu", "one token", "numpy", "gpu"],
)
def test_a_check_between_two_layers_finds_the_first_one_computed(
    ops: Ops, x: mx.array, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or all of a large pass would run behind the last check."""
    evaluated = computed(monkeypatch)
    seen: list[list[object]] = []
    ops.before_layer(x, lambda: seen.append(list(evaluated)))
    assert seen == [[x] if waits else []]
    evaluated.clear()
    ops.before_layer(x, never_stop)  # nobody would stop it
    assert not evaluated


def test_products_follow_the_load_outside_of_lanes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a lane a product has one core, whatever is free."""
    followed: list[bool] = []
    monkeypatch.setattr(cpu_ops, "follow_load", lambda: followed.append(True))
    ops = CpuOps()
    ops.before_layer(ONE_TOKEN, never_stop)
    assert followed == [True]
    lanes.run([lambda check: ops.before_layer(ONE_TOKEN, check)], never_stop)
    assert followed == [True]


@pytest.mark.parametrize(("rows", "columns", "whole"), [(6, 4, True), (4, 4, True), (4, 6, False)])
def test_a_wide_weight_is_whole_as_its_products_read_it(
    rows: int, columns: int, whole: bool
) -> None:
    """A product of one row reads it a half faster then; one of a high weight would lose a fifth."""
    weight = mx.arange(rows * columns, dtype=mx.float32).reshape(rows, columns)
    laid_out = CpuOps().laid_out(weight)
    assert np.array_equal(np.asarray(laid_out), np.asarray(weight).T)
    assert np.asarray(laid_out).flags.c_contiguous == whole
    assert not np.asarray(Ops().laid_out(weight)).flags.c_contiguous


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen2"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_the_layout_of_weights_changes_no_logits(
    checkpoint: Callable[..., Path], family: str, tokens: int
) -> None:
    """qwen2's products have biases."""
    directory = checkpoint(family)
    prompt = [[5, 6, 7][:tokens]]
    found = [last_logits(load_decoder(directory, ops=ops), prompt) for ops in (Ops(), CpuOps())]
    assert float(mx.abs(found[0] - found[1]).max()) < 1e-5


def test_weights_are_laid_out_a_layer_at_a_time(checkpoint: Callable[..., Path]) -> None:
    """The whole model is never in memory twice."""
    layers = 12
    directory = checkpoint(hidden_size=64, intermediate_size=256, num_hidden_layers=layers)
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    decoder = load_decoder(directory)
    held, peak = mx.get_active_memory() - before, mx.get_peak_memory() - before
    assert decoder.layers
    assert held <= (directory / "model.safetensors").stat().st_size  # float32, as here
    assert peak - held < held / layers
