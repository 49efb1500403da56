"""The views of the cache that reach fused attention, with the operations of a GPU.

MLX's CUDA kernel for one query a row, which takes no mask, reads wrong memory for a view that
begins past its buffer's start. It cannot run here: what would be handed to it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from core.options import GenerateConfig, LoadConfig
from core_mlx_native.cpu import ops as cpu_ops
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.decode.engine import MlxEngine
from core_mlx_native.decode.kv_cache import LayerCache
from core_mlx_native.loaded import load
from core_mlx_native.network.ops import Ops
from core_mlx_native.network.values import KeysValues
from core_runtime.owner import OwnerThread
from core_runtime.request import Item, Request, RequestEnd
from core_runtime.waiting import PromptJob

Checkpoint = Callable[..., Path]

BOTH = [(451, 5), (301, 12)]  # tokens of the prompt, and of the text: the longer row ends first


@dataclass
class Looks:
    """Attention of one query a row: where each view began, how long it was, and its mask."""

    unmasked: list[tuple[int, int]] = field(default_factory=list)
    masked: list[tuple[int, int]] = field(default_factory=list)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Filled by every step of decoding while the test runs."""
    found, starts = Looks(), dict[int, int]()
    update, fused = LayerCache.update, mx.fast.scaled_dot_product_attention

    def updated(layer: LayerCache, keys: mx.array, values: mx.array) -> KeysValues:
        shown = update(layer, keys, values)
        starts[id(shown[0])] = layer.columns.start
        return shown

    def attended(
        queries: mx.array, keys: mx.array, values: mx.array, *, scale: float, mask: Any
    ) -> mx.array:
        if queries.shape[2] == 1:
            view = (starts[id(keys)], keys.shape[2])
            (found.unmasked if mask is None else found.masked).append(view)
        return fused(queries, keys, values, scale=scale, mask=mask)

    monkeypatch.setattr(LayerCache, "update", updated)
    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", attended)
    return found


def decoded(directory: Path, on_gpu: bool, asked: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The tokens of texts that decode together, from prompts of some lengths."""
    options = LoadConfig(options={"dtype": "float32"})
    model = load(directory, options, on_gpu)
    owner = OwnerThread("views")
    owner.stop()
    owner.post = lambda job: True  # type: ignore[method-assign]  # the test takes the steps itself
    engine = MlxEngine(model, owner)

    texts = [list[int]() for _ in asked]
    for index, (length, count) in enumerate(asked):
        config = GenerateConfig(max_tokens=count, seed=index)
        ids = [2 + (7 * at + index) % 90 for at in range(length)]
        request = Request(model, ids, config, partial(_take, texts[index]))
        engine.submit([PromptJob(ids, (request,))])
    while engine.step():
        pass
    return texts


def _take(text: list[int], item: Item) -> None:
    if not isinstance(item, RequestEnd):
        text += [token.id for token in item]


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral"])
def test_no_view_past_the_start_goes_without_a_mask(
    checkpoint: Checkpoint, looks: Looks, family: str
) -> None:
    directory = checkpoint(family, max_position_embeddings=1024, eos_token_id=None)
    texts = decoded(directory, True, BOTH)
    assert looks.unmasked or family == "mistral", "rows of one length need no mask"
    assert {start for start, _ in looks.unmasked} <= {0}
    wanted = decoded(directory, False, BOTH)
    assert texts == wanted
    assert len(texts[1]) == 12


def test_the_row_that_is_left_moves_once_and_needs_no_mask(
    checkpoint: Checkpoint, looks: Looks
) -> None:
    """The fused kernel serves it then; a mask would cost it that at every step."""
    decoded(checkpoint("llama", max_position_embeddings=1024), True, BOTH)
    assert looks.unmasked[0] == (0, 307)
    assert len(looks.unmasked) >= 2 * 5  # in both layers


def test_a_cpu_has_no_more_masks_than_before(
    checkpoint: Checkpoint, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_ops, "_FEW_TOKENS", 0)  # those attend without MLX
    decoded(checkpoint("llama", max_position_embeddings=1024), False, BOTH)
    assert {start for start, _ in looks.unmasked} == {150}


def test_only_heads_that_the_kernel_takes_are_laid_out_for_it() -> None:
    assert [Ops().reads_whole_buffers(size) for size in (64, 128, 256)] == [True, True, False]
    assert not CpuOps().reads_whole_buffers(64)


def test_metals_kernel_reads_views_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    assert not Ops().reads_whole_buffers(64)
