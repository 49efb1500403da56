"""An embedding in blocks, as the head and for its rows, against the plain matrix."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from core_mlx_native.chosen import FastPaths
from core_mlx_native.cpu import blocks
from core_mlx_native.cpu.blocks import BlockMatrix
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.cpu.product import functions
from core_mlx_native.loaded import load_decoder
from core_mlx_native.network.prefill import NO_PREFIX, read
from runtime.tests.tiny import Checkpoint

WIDTH = 6


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_ROWS", 8)
    monkeypatch.setattr(blocks, "_TURNED", 3)


def made(vocabulary: int) -> tuple[BlockMatrix, mx.array]:
    weight = mx.random.normal((vocabulary, WIDTH), key=mx.random.key(vocabulary))
    plain = weight + 0
    mx.eval(weight, plain)
    by = functions()
    assert by is not None
    return BlockMatrix(weight, by), plain


@pytest.mark.parametrize("vocabulary", [1, 7, 8, 9, 24, 29])
@pytest.mark.parametrize("shape", [(1,), (3,), (2, 1), (2, 4)], ids=str)
def test_it_is_the_plain_matrix(vocabulary: int, shape: tuple[int, ...]) -> None:
    matrix, plain = made(vocabulary)
    x = mx.random.normal((*shape, WIDTH), key=mx.random.key(1))
    found, wanted = matrix.product(x), x @ plain.T
    assert found.shape == wanted.shape
    assert float(mx.abs(found - wanted).max()) < 1e-5
    index = mx.random.randint(0, vocabulary, shape, key=mx.random.key(2))
    assert mx.array_equal(matrix.rows(index), plain[index])


def test_it_takes_no_memory_but_the_weights() -> None:
    """A head transposed as a whole would be there twice."""
    weight = mx.zeros((4096, 64))
    mx.eval(weight)
    by, before = functions(), mx.get_active_memory()
    assert by is not None
    mx.reset_peak_memory()
    matrix = BlockMatrix(weight, by)
    address = np.asarray(weight).ctypes.data
    del weight
    assert mx.get_peak_memory() - before < 4096
    assert np.asarray(matrix.blocks).ctypes.data == address


@pytest.mark.parametrize("family", ["gemma2", "gemma3"])
def test_a_tied_head_gives_the_logits_of_the_plain_one(checkpoint: Checkpoint, family: str) -> None:
    directory, prompt = checkpoint(family), [5, 6, 7]

    def logits(few_tokens: bool) -> mx.array:
        decoder = load_decoder(directory, ops=CpuOps(few_tokens=few_tokens))
        assert isinstance(decoder.embed_tokens, BlockMatrix) == few_tokens
        hidden = read(decoder, [prompt], [(2,)], NO_PREFIX, FastPaths()).hidden[:, 0]
        whole = decoder.logits(hidden)
        some = mx.array([3, 60, 9])
        assert float(mx.abs(decoder.logits_of(hidden, some) - whole[:, some]).max()) < 1e-5
        return whole

    assert float(mx.abs(logits(few_tokens=True) - logits(few_tokens=False)).max()) < 1e-5
