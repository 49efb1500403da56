"""Activations and softmax through numpy, against float64 and against MLX's own."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from core_mlx_native.cpu import numpy_ops
from core_mlx_native.cpu.numpy_ops import Floats
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.network import ops
from core_mlx_native.network.ops import ACTIVATIONS, Ops, softcap


def same(found: mx.array, wanted: mx.array) -> None:
    np.testing.assert_allclose(np.array(found), np.array(wanted), rtol=5e-6, atol=1e-6)


numbers = st.floats(-200, 200, width=32)


def exactly(name: str, gate: Floats, up: Floats) -> npt.NDArray[np.float64]:
    """In float64; MLX's own gelu loses digits where 1 + tanh is small."""
    x = gate.astype(np.float64)
    y = 2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3) if name == "gelu_tanh" else x
    with np.errstate(over="ignore"):
        return np.asarray(x / (1 + np.exp(-y)) * up)


@settings(deadline=None)
@given(arrays(np.float32, array_shapes(min_dims=1, max_dims=3), elements=numbers))
@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_gated_activations(name: str, x: Floats) -> None:
    up = x[..., ::-1].copy()
    found = numpy_ops.GATED[name](mx.array(x), mx.array(up))
    assert found.dtype == mx.float32
    np.testing.assert_allclose(np.array(found), exactly(name, x, up), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_many_numbers_are_shared_among_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_ops, "_cores", lambda: 3)
    gate, up = mx.random.normal((257, 1031)) * 9, mx.random.normal((257, 1031))
    wanted = exactly(name, np.array(gate), np.array(up))
    own = np.array(ACTIVATIONS[name](gate) * up)
    found = np.array(numpy_ops.GATED[name](gate, up))
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(found, own, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_a_gpu_computes_a_gated_activation_as_one_function(
    name: str, dtype: mx.Dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, up = (mx.random.normal((5, 9)).astype(dtype) for _ in range(2))
    plain = CpuOps().gated(name, gate, up)
    compiled: list[bool] = []
    real = mx.compile

    def watched(function: Callable[..., mx.array], *, shapeless: bool) -> Callable[..., mx.array]:
        compiled.append(shapeless)
        return real(function, shapeless=shapeless)

    monkeypatch.setattr(mx, "compile", watched)
    ops._fused.cache_clear()
    fused = [Ops().gated(name, gate, up) for _ in range(2)]
    ops._fused.cache_clear()
    assert compiled == [True]  # once, for any shape
    assert all(mx.array_equal(each, plain) and each.dtype == dtype for each in fused)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("cap", [None, 5.0])
@pytest.mark.parametrize("cores", [1, 4])
def test_softmax(rows: int, cap: float | None, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_ops, "_cores", lambda: cores)
    monkeypatch.setattr(numpy_ops, "_WORTH_THREADS", 1)
    scores = mx.random.normal((3, 2, 4 * 5, 7)) * 20  # [B, kv heads, group * T, S]
    hidden = mx.random.uniform(shape=(rows, 1, 5, 7)) < 0.5
    hidden[..., 0] = False
    mask = mx.where(hidden, -mx.inf, 0.0)  # [1 or B, 1, T, S]
    capped = scores if cap is None else softcap(scores, cap)
    wide = mx.softmax(capped.reshape(3, 2, 4, 5, 7) + mask[:, :, None], axis=-1)
    plain = mx.softmax(capped, axis=-1)
    mx.eval(wide, plain)  # the scores are written over
    found = numpy_ops.softmax(mx.array(np.array(scores)), mask, cap)
    same(found, wide.reshape(scores.shape))
    bare = numpy_ops.softmax(scores, None, cap)
    same(bare, plain)


def test_the_sum_over_a_large_vocabulary_is_exact() -> None:
    logits = np.random.default_rng(0).normal(0, 4, (3, 2, 262_144)).astype(np.float32)
    logits[0, 0, 5] = 90.0
    wide = logits.astype(np.float64)
    top = wide.max(-1, keepdims=True)
    wanted = top[..., 0] + np.log(np.exp(wide - top).sum(-1))
    np.testing.assert_allclose(numpy_ops.log_total(mx.array(logits)), wanted, rtol=1e-6)
