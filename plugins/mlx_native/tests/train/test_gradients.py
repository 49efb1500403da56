"""Gradients against central differences in float64, on a tiny model of every family.

MLX's ``exp`` is computed in float32 whatever it is given, and so are its sigmoid, softmax and
norm: no difference of such numbers tells a slope. `ExactOps` are the same operations made of
``power``, which is not. The gradients are MLX's own in either case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from core_mlx_native.adapters.apply import LoraSettings, new_adapter, twin
from core_mlx_native.checkpoint.weights import load_weights
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.cpu.training_ops import DifferentiableOps, TrainingOps
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.ops import Ops, softcap
from core_mlx_native.network.values import LMHead, Mask
from core_mlx_native.to_python import number
from core_mlx_native.train.batches import TrainingBatch, batch_of
from core_mlx_native.train.objective import Objective, Parameters
from core_mlx_native.train.rows import TokenRow
from core_runtime.checkpoint.config import load_config

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3")
ROWS = [
    TokenRow((2, 5, 9, 11, 40, 41, 8, 7, 3, 12, 60), (8, 9, 10)),
    TokenRow((7, 30, 31, 6, 5), (3, 4)),
    TokenRow((4, 17, 90), (1, 2)),
]
WIDE, NARROW = mx.float64, mx.float32
STEP = 1e-5  # of a central difference in float64: both of its errors are near 1e-10
SETTINGS = LoraSettings(rank=2, scale=2.0, num_layers=2, seed=3)

E = math.e

Checkpoint = Callable[..., Path]


class ExactOps(DifferentiableOps):
    """Operations whose float64 is one."""

    def gated(self, activation: str, gate: mx.array, up: mx.array) -> mx.array:
        if activation == "silu":
            return gate / (1 + mx.power(E, -gate)) * up
        return super().gated(activation, gate, up)  # by tanh, which is exact

    def attention(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        scale: float,
        cap: float | None,
        mask: Mask,
    ) -> mx.array:
        batch, heads, length, dim = queries.shape
        grouped = (queries * scale).reshape(batch, keys.shape[1], -1, length, dim)
        scores = grouped @ keys[:, :, None].swapaxes(-1, -2)
        scores = scores if cap is None else softcap(scores, cap)
        assert isinstance(mask, mx.array)
        shares = mx.power(E, scores + mask[:, :, None])
        shares = shares / shares.sum(axis=-1, keepdims=True)
        return (shares @ values[:, :, None]).reshape(batch, heads, length, dim)

    def token_losses(self, head: LMHead, hidden: mx.array, targets: mx.array) -> mx.array:
        logits = head.logits(hidden)
        total = mx.log(mx.power(E, logits).sum(axis=-1))
        return total - mx.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> ExactOps:
    """Operations in float64, and a norm."""

    def rms_norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
        return x * mx.rsqrt(x.square().mean(axis=-1, keepdims=True) + eps) * weight

    monkeypatch.setattr(mx.fast, "rms_norm", rms_norm)
    return ExactOps()


@pytest.fixture(autouse=True)
def on_the_cpu() -> Iterator[None]:
    with mx.stream(mx.cpu):
        yield


def decoder_of(directory: Path, dtype: mx.Dtype, ops: Ops, layout: CpuOps | None = None) -> Decoder:
    """The network of a checkpoint with operations that have a gradient."""
    config = load_config(directory)
    whole = Decoder(config, load_weights(directory, config, dtype, True), layout or CpuOps())
    return twin(whole, ops)


def objective_of(
    decoder: Decoder, dtype: mx.Dtype, settings: LoraSettings = SETTINGS, **options: Any
) -> tuple[Objective, dict[str, mx.array]]:
    """An objective, and parameters away from where training begins, so that no slope is zero."""
    adapter = new_adapter(decoder, settings)
    parameters = {}
    for seed, (name, value) in enumerate(adapter.parameters().items()):
        noise = np.random.default_rng(seed).normal(scale=0.2, size=value.shape)
        parameters[name] = mx.array(np.array(value.astype(NARROW), np.float64) + noise, dtype=dtype)
    return Objective(decoder, adapter, **options), parameters


@contextmanager
def one_changed(
    parameters: Parameters, name: str, place: tuple[int, ...], by: float
) -> Iterator[dict[str, mx.array]]:
    changed = np.array(parameters[name], np.float64)
    changed[place] += by
    yield {**parameters, name: mx.array(changed, dtype=WIDE)}


def difference(
    objective: Objective,
    parameters: Parameters,
    batch: TrainingBatch,
    name: str,
    place: tuple[int, ...],
) -> float:
    """The central difference of the loss by one number."""
    losses = []
    for by in (STEP, -STEP):
        with one_changed(parameters, name, place, by) as changed:
            losses.append(number(objective.loss(changed, batch)))
    return (losses[0] - losses[1]) / (2 * STEP)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_central_differences_in_float64(
    checkpoint: Checkpoint, exact: ExactOps, family: str
) -> None:
    objective, parameters = objective_of(decoder_of(checkpoint(family), WIDE, exact), WIDE)
    batch = batch_of(ROWS, range(len(ROWS)))
    found = objective.value_and_gradient(parameters, batch)
    assert found.loss.dtype == WIDE

    draw = np.random.default_rng(0)
    for name, value in parameters.items():
        place = tuple(int(draw.integers(size)) for size in value.shape)
        slope = float(np.array(found.gradient[name], np.float64)[place])
        expected = difference(objective, parameters, batch, name, place)
        assert slope == pytest.approx(expected, rel=1e-6, abs=1e-8), name


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("few_tokens", [False, True], ids=["dense-head", "head-in-blocks"])
def test_gradients_through_numpy_are_those_in_float64(
    checkpoint: Checkpoint, family: str, few_tokens: bool
) -> None:
    directory = checkpoint(family)
    right, wide = objective_of(decoder_of(directory, WIDE, ExactOps()), WIDE)
    fast, narrow = objective_of(
        decoder_of(directory, NARROW, TrainingOps(), CpuOps(True, few_tokens)), NARROW
    )
    batch = batch_of(ROWS, range(len(ROWS)))
    expected = right.value_and_gradient(wide, batch)
    found = fast.value_and_gradient(narrow, batch)

    assert number(found.loss) == pytest.approx(number(expected.loss), rel=1e-6)
    for name in narrow:
        slope, true = (np.array(each.gradient[name], np.float64) for each in (found, expected))
        assert np.abs(slope - true).max() <= 2e-5 * max(1.0, np.abs(true).max()), name


@pytest.mark.parametrize("ops", [DifferentiableOps(), TrainingOps()], ids=["mlx", "numpy"])
def test_a_checkpointed_block_has_the_same_gradient(checkpoint: Checkpoint, ops: Ops) -> None:
    directory, batch = checkpoint("gemma3"), batch_of(ROWS, range(len(ROWS)))
    decoder = decoder_of(directory, NARROW, ops)
    plain, parameters = objective_of(decoder, NARROW)
    again, _ = objective_of(decoder_of(directory, NARROW, ops), NARROW, checkpointing=True)
    expected, found = (each.value_and_gradient(parameters, batch) for each in (plain, again))
    assert number(found.loss) == pytest.approx(number(expected.loss), rel=1e-6)
    for name, right in expected.gradient.items():
        assert float(mx.abs(right).max()) > 0, name
        np.testing.assert_allclose(found.gradient[name], right, rtol=1e-5, atol=1e-6)


def test_dora_has_the_gradient_of_its_definition(checkpoint: Checkpoint, exact: ExactOps) -> None:
    """Its lengths are constants to the gradient: central differences of a loss with them held."""
    settings = LoraSettings(rank=2, scale=2.0, num_layers=2, seed=3, dora=True)
    decoder = decoder_of(checkpoint("llama"), WIDE, exact)
    objective, parameters = objective_of(decoder, WIDE, settings)
    batch = batch_of(ROWS, range(len(ROWS)))
    gradient = objective.value_and_gradient(parameters, batch).gradient
    name = next(name for name in parameters if name.endswith(".m"))
    expected = difference(objective, parameters, batch, name, (3,))
    assert float(np.array(gradient[name])[3]) == pytest.approx(expected, rel=1e-5)


def test_jvp_and_vjp_are_reached_through_mlx(checkpoint: Checkpoint) -> None:
    """Forward and backward derivatives meet: ``<gradient, direction>`` is the jvp."""
    decoder = decoder_of(checkpoint("llama"), WIDE, DifferentiableOps())
    objective, parameters = objective_of(decoder, WIDE)
    batch, names = batch_of(ROWS, range(len(ROWS))), [*parameters]

    def loss(*values: mx.array) -> mx.array:
        return objective.loss(dict(zip(names, values, strict=True)), batch)

    values = [*parameters.values()]
    tangents = [mx.ones_like(value) * 0.1 for value in values]
    _, [forward] = mx.jvp(loss, values, tangents)
    _, slopes = mx.vjp(loss, values, [mx.array(1.0, dtype=WIDE)])
    pairs = zip(slopes, tangents, strict=True)
    backward = math.fsum(number((slope * way).sum()) for slope, way in pairs)
    assert number(forward) == pytest.approx(backward, rel=1e-5)
