"""Gradients against torch's and PEFT's, steps against mlx-lm's own trainer (oracle_training/)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import core
from core_mlx_native.adapters.apply import Adapter, attach, twin
from core_mlx_native.adapters.files import read_adapter
from core_mlx_native.adapters.layers import LowRank
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.cpu.training_ops import DifferentiableOps, TrainingOps
from core_mlx_native.loaded import load_decoder
from core_mlx_native.network.ops import Ops
from core_mlx_native.train.batches import batch_of
from core_mlx_native.train.objective import Objective
from core_mlx_native.train.rows import TokenRow
from core_mlx_native.train.steps import Steps
from core_runtime.checkpoint.config import load_config

TESTS = Path(__file__).parents[1]
ORACLE = TESTS / "oracle_training"
CASES = {
    "plain": "llama-2-kv-heads-biased/default",
    "patterns": "gemma3-4-kv-heads/linear",
    "dora": "qwen2-1-kv-head-tied/default",
}
ROWS: list[tuple[list[int], int]] = json.loads((ORACLE / "rows.json").read_text())
PADDING = 0  # behind each row, where mlx-lm learns one token more
OPS = pytest.mark.parametrize("ops", [DifferentiableOps(), TrainingOps()], ids=["mlx", "numpy"])

Tensors = dict[str, mx.array]


@pytest.fixture(autouse=True)
def on_the_cpu() -> Iterator[None]:
    with mx.stream(mx.cpu):
        yield


def assembled(name: str, directory: Path) -> Path:
    checkpoint, variant = name.split("/")
    shutil.copytree(TESTS / "oracle" / "data" / checkpoint / "weights", directory)
    shutil.copy(TESTS / "oracle" / "data" / checkpoint / variant / "config.json", directory)
    return directory


def tensors(path: Path) -> Tensors:
    found = mx.load(str(path))
    assert isinstance(found, dict)
    return found


def rows(extra: tuple[int, ...] = ()) -> list[TokenRow]:
    """What both learn of each row: the tokens from a place on."""
    whole = [((*ids, *extra), start) for ids, start in ROWS]
    return [TokenRow(ids, tuple(range(start, len(ids)))) for ids, start in whole]


@OPS
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_torch(tmp_path: Path, case: str, ops: Ops) -> None:
    directory = assembled(CASES[case], tmp_path / "model")
    stored = read_adapter(TESTS / "oracle_peft" / "data" / case, load_config(directory))
    network = twin(load_decoder(directory, ops=CpuOps(True, True)), ops)
    if not isinstance(ops, TrainingOps):  # a head in blocks is numpy's alone
        network = twin(load_decoder(directory, ops=CpuOps()), ops)
    adapter = attach(network, stored.layers)
    found = Objective(network, adapter).value_and_gradient(
        adapter.parameters(), batch_of(rows(), range(len(ROWS)))
    )

    expected = tensors(ORACLE / "data" / "gradients" / f"{case}.safetensors")
    loss = float(np.array(expected.pop("loss"))[0])
    assert float(np.array(found.loss)) == pytest.approx(loss, rel=1e-5)
    assert expected.keys() == found.gradient.keys()
    largest = max(float(mx.abs(slope).max()) for slope in expected.values())
    for name, slope in expected.items():
        apart = float(mx.abs(found.gradient[name] - slope).max())
        assert apart <= 1e-5 * max(1.0, largest), name


def start(directory: Path, ops: Ops) -> tuple[Adapter, Steps]:
    """A training that begins where mlx-lm's did."""
    begun = tensors(ORACLE / "data" / "steps" / "start.safetensors")
    names = [name.removesuffix(".lora_a") for name in begun if name.endswith(".lora_a")]
    added = {name: LowRank(begun[f"{name}.lora_a"], begun[f"{name}.lora_b"], 2.0) for name in names}
    network = twin(load_decoder(directory, ops=CpuOps()), ops)
    adapter = attach(network, added)
    config = core.TrainConfig(
        rank=4, scale=2.0, learning_rate=1e-3, batch_size=len(ROWS), bias_correction=False
    )
    return adapter, Steps(Objective(network, adapter), adapter, rows((PADDING,)), config)


@OPS
@pytest.mark.parametrize(("count", "tolerance"), [(1, 1e-5), (10, 1e-4)])
def test_steps_are_those_of_mlx_lm(tmp_path: Path, ops: Ops, count: int, tolerance: float) -> None:
    directory = assembled(CASES["plain"], tmp_path / "model")
    adapter, steps = start(directory, ops)
    losses = [steps.run(number).loss for number in range(1, count + 1)]

    expected = json.loads((ORACLE / "data" / "steps" / "losses.json").read_text())
    assert losses == pytest.approx(expected[:count], abs=tolerance)
    moved = tensors(ORACLE / "data" / "steps" / f"{count}.safetensors")
    assert moved.keys() == steps.parameters.keys() == adapter.parameters().keys()
    begun = tensors(ORACLE / "data" / "steps" / "start.safetensors")
    assert max(float(mx.abs(moved[name] - begun[name]).max()) for name in moved) > 1e-3
    for name, value in moved.items():
        assert float(mx.abs(steps.parameters[name] - value).max()) <= tolerance, name
