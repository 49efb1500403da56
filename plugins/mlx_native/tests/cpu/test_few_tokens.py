"""Passes of few tokens in numpy: what MLX's own layers compute, without their operations."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from core_mlx_native.chosen import FastPaths
from core_mlx_native.cpu import few_tokens
from core_mlx_native.cpu import ops as cpu_ops
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.decode.kv_cache import BatchCache, CacheShape
from core_mlx_native.loaded import load_decoder
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.ops import Ops
from core_mlx_native.network.prefill import NO_PREFIX, read, run_prefix
from runtime.tests.tiny import FAMILIES, Checkpoint

TOLERANCE = 1e-5
LENGTHS = (3, 9, 14)  # windows are of 8
STEPS = 12
LAYER_OPERATIONS = 150  # of MLX's in a decode step: 90 in Llama's, 147 in Gemma 3's


@pytest.fixture(params=[*FAMILIES, "one head each"])
def decoder(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> Decoder:
    if request.param == "one head each":
        directory = checkpoint("llama", num_key_value_heads=4)
    else:
        directory = checkpoint(request.param)
    return load_decoder(directory, ops=CpuOps(few_tokens=True))


def switch(decoder: Decoder, on: bool) -> None:
    assert isinstance(decoder.ops, CpuOps)
    decoder.ops.few_tokens = on


def cache_of(decoder: Decoder, rows: int, chunk: int = 8) -> BatchCache:
    config = decoder.config
    windows = tuple(kind.window for kind in config.layers)
    shape = CacheShape(windows, config.num_kv_heads, config.head_dim, mx.float32, chunk=chunk)
    return BatchCache(shape, rows)


def decoded(decoder: Decoder, lengths: tuple[int, ...]) -> list[mx.array]:
    """The logits of ragged prompts' ends, then of the steps behind them."""
    cache, size = cache_of(decoder, len(lengths)), max(lengths)
    tokens = mx.random.randint(3, 60, (len(lengths), size), key=mx.random.key(1))
    hidden, _ = decoder(tokens, cache.begin(size, lengths), cache.layers)
    found = [decoder.logits(hidden[:, -1])]
    for step in range(STEPS):
        fed = mx.array([[5 + (step + row) % 40] for row in range(len(lengths))])
        hidden, _ = decoder(fed, cache.begin(), cache.layers)
        found.append(decoder.logits(hidden[:, -1]))
    mx.eval(found)
    return found


@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[:1], (5, 5)], ids=str)
def test_decoding_is_that_of_the_layers(decoder: Decoder, lengths: tuple[int, ...]) -> None:
    """Ragged rows have masks; buffers move, and windows hide what is behind them."""
    found = decoded(decoder, lengths)
    switch(decoder, on=False)
    for one, other in zip(found, decoded(decoder, lengths), strict=True):
        assert float(mx.abs(one - other).max()) < TOLERANCE


@pytest.mark.parametrize("shared", [0, 2, 11])
def test_a_short_pass_is_that_of_the_layers(decoder: Decoder, shared: int) -> None:
    prompts = [[7] * shared + list(range(3, 3 + length)) for length in LENGTHS]
    positions = [(len(prompt) - 1, max(shared, len(prompt) - 3)) for prompt in prompts]

    def logits() -> tuple[mx.array, list[tuple[mx.array, mx.array]]]:
        paths = FastPaths()
        prefix = run_prefix(decoder, prompts[0][:shared], paths) if shared else NO_PREFIX
        batch = read(decoder, prompts, positions, prefix, paths)
        return decoder.logits(batch.hidden_of(positions)), batch.cache

    found, cache = logits()
    switch(decoder, on=False)
    wanted, other_cache = logits()
    assert float(mx.abs(found - wanted).max()) < TOLERANCE
    for layer, other in zip(cache, other_cache, strict=True):
        for one, two in zip(layer, other, strict=True):
            assert one.shape == two.shape
            assert float(mx.abs(one - two).max()) < TOLERANCE


def operations(decoder: Decoder, tmp_path: Path) -> int:
    """The operations that MLX has to compute for the hidden states of a step."""
    cache = cache_of(decoder, 2)
    hidden, _ = decoder(mx.array([[5, 6], [7, 8]]), cache.begin(2), cache.layers)
    mx.eval(hidden, cache.arrays())
    hidden, _ = decoder(mx.array([[5], [6]]), cache.begin(), cache.layers)
    graph = tmp_path / "step.dot"
    mx.export_to_dot(str(graph), hidden)
    return graph.read_text().count("shape=rectangle")


def test_the_operations_of_a_step_are_counted(decoder: Decoder, tmp_path: Path) -> None:
    """Each takes about 10 us on a CPU, whatever its size: the layers leave none of them there."""
    assert operations(decoder, tmp_path) == 0
    switch(decoder, on=False)
    found = operations(decoder, tmp_path) / len(decoder.layers)
    assert 80 < found < LAYER_OPERATIONS


def test_long_passes_and_read_positions_are_left_to_the_layers(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_tokens.FewTokens, "__call__", None)
    monkeypatch.setattr(cpu_ops, "_FEW_TOKENS", 2)
    read(decoder, [[5, 6, 7]], [(2,)], NO_PREFIX, FastPaths())
    with pytest.raises(TypeError):
        read(decoder, [[5, 6]], [(1,)], NO_PREFIX, FastPaths())


@pytest.mark.parametrize("why", ["no BLAS", "switched off", "a GPU"])
def test_where_they_cannot_run_the_layers_do(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(few_tokens.FewTokens, "__call__", None)
    if why == "no BLAS":
        monkeypatch.setattr(few_tokens, "functions", lambda: None)
    ops = Ops() if why == "a GPU" else CpuOps(few_tokens=why == "no BLAS")
    decoder = load_decoder(checkpoint(), ops=ops)
    assert decoded(decoder, LENGTHS)[0].shape == (3, decoder.config.vocab_size)
