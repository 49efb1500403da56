"""Attention of plain products, for heads that no kernel of a GPU takes, against MLX's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from core.options import LoadConfig
from core_mlx_native.chosen import FastPaths
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.loaded import load, load_decoder
from core_mlx_native.network import prefill as prefilling
from core_mlx_native.network.masks import additive, seen_from
from core_mlx_native.network.ops import Ops, grouped_attention
from core_mlx_native.network.prefill import NO_PREFIX, read, run_prefix, windows
from plugins.mlx_native.tests.network.logits import last_logits

Checkpoint = Callable[..., Path]
HEAD = 256
TOLERANCES = {mx.float32: 1e-5, mx.bfloat16: 3e-2}
PROMPTS = [[5, 9, 11, 7, 30, 31, 32, 33, 34, 35, 36], [5, 9, 11, 7, 40], [5, 9, 11, 7, 50, 51]]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 1), (8, 4), (2, 2)])
@pytest.mark.parametrize("masked", [True, False])
def test_it_is_mlxs_own(dtype: mx.Dtype, heads: int, kv_heads: int, masked: bool) -> None:
    random = np.random.default_rng(0)

    def made(count: int, size: int) -> mx.array:
        return mx.array(random.standard_normal((3, count, size, HEAD), np.float32)).astype(dtype)

    queries, keys, values = made(heads, 5), made(kv_heads, 12), made(kv_heads, 12)
    positions = mx.array([[7, 8, 9, 10, 11], [0, 1, 2, 3, 4], [3, 4, 5, 6, 7]])
    mask = additive(seen_from(positions, 12, 6), dtype) if masked else None
    found = grouped_attention(queries, keys, values, 0.1, mask)
    wanted = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.1, mask=mask)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert mx.abs(found.astype(mx.float32) - wanted.astype(mx.float32)).max() < TOLERANCES[dtype]


@pytest.fixture
def no_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> mx.array:
        raise AssertionError("MLX's own attention was called")

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", refuse)


def wide(checkpoint: Checkpoint, family: str = "gemma3") -> Path:
    return checkpoint(family, head_dim=HEAD, query_pre_attn_scalar=HEAD)


@pytest.mark.parametrize("last_layer", [True, False])
@pytest.mark.parametrize("shared", [0, 4])
def test_a_model_with_wide_heads_computes_the_same(
    checkpoint: Checkpoint, shared: int, last_layer: bool, request: pytest.FixtureRequest
) -> None:
    """Rows on both sides of the window, behind a prefix and without."""
    directory = wide(checkpoint)
    wanted = np.array(last_logits(load_decoder(directory), PROMPTS))
    request.getfixturevalue("no_fused")

    decoder = load_decoder(directory, ops=Ops())
    fast = replace(FastPaths(), last_layer=last_layer)
    prefix = run_prefix(decoder, PROMPTS[0][:shared], fast) if shared else NO_PREFIX
    ends = [len(prompt) - 1 for prompt in PROMPTS]
    batch = read(decoder, PROMPTS, [[end] for end in ends], prefix, fast)
    found = np.array(decoder.logits(batch.hidden_at(ends)))
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_its_mask_is_made_once_a_window_and_pass(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(allowed: mx.array, dtype: mx.Dtype) -> mx.array:
        made.append(allowed.shape[2])
        return additive(allowed, dtype)

    monkeypatch.setattr(prefilling, "additive", counted)
    decoder = load_decoder(wide(checkpoint), ops=Ops())
    ends = [[len(prompt) - 1] for prompt in PROMPTS]
    mx.eval(read(decoder, PROMPTS, ends, NO_PREFIX, FastPaths()).hidden)
    assert len(decoder.layers) > len(windows(decoder)) == 2
    assert sorted(made) == [1, 1, 11, 11]  # of the ends, and of all tokens


def test_narrow_heads_keep_the_fused_kernel_and_its_mask_by_name(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks: list[object] = []
    real = mx.fast.scaled_dot_product_attention

    def noted(*arrays: mx.array, scale: float, mask: Any) -> mx.array:
        masks.append(mask)
        return real(*arrays, scale=scale, mask=mask)

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", noted)
    decoder = load_decoder(checkpoint("llama"), ops=Ops())
    fast = replace(FastPaths(), last_layer=False)
    read(decoder, PROMPTS, [[4]] * 3, NO_PREFIX, fast)
    assert masks == ["causal"] * len(decoder.layers)


@pytest.mark.parametrize(
    ("metal", "fused"),
    [(False, [True, False, False, False]), (True, [True, True, False, True])],
    ids=["cuda", "metal"],
)
def test_which_heads_a_kernel_takes(
    metal: bool, fused: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mx.metal, "is_available", lambda: metal)
    asked = [(128, 64), (HEAD, 1), (HEAD, 64), (HEAD, 1024)]
    assert [Ops().fuses(*each) for each in asked] == fused
    assert all(CpuOps().fuses(*each) for each in asked)


def test_a_capped_family_keeps_its_own_attention(checkpoint: Checkpoint, no_fused: None) -> None:
    directory = wide(checkpoint, "gemma2")
    model = load(directory, LoadConfig(options={"dtype": "float32"}), on_gpu=True)
    found = np.array(last_logits(model.decoder, PROMPTS))
    assert np.isfinite(found).all()
