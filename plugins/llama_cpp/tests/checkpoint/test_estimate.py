"""Context and cache sizes: chosen within memory, or refused before anything is allocated."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidModelError, InvalidOptionError, OutOfMemoryError
from core.options import LoadConfig
from core_llama_cpp.checkpoint.estimate import context_size, estimate, free_memory
from core_llama_cpp.checkpoint.header import ModelHeader, read_header
from core_llama_cpp.ggml import DeviceType, GgmlDevice
from core_llama_cpp.library import load_library
from core_runtime.gguf_files import find_files
from core_runtime.sequences.context import ContextSize, Estimate

TinyGguf = Callable[..., Path]
MIB, GIB = 2**20, 2**30
GPU = GgmlDevice("ROCm", "ROCm0", "a GPU", DeviceType.GPU, memory_free=6 * GIB)


def _header(context: int, cell_bytes: int = 1024) -> ModelHeader:
    return ModelHeader(Path("m.gguf"), "llama", {}, context, 64, 2, 4, 100, cell_bytes)


def _sizes(
    context: int, memory: int | None, slots: int = 8, fixed: int = 0, **options: object
) -> tuple[int, int]:
    config = LoadConfig(**options)  # type: ignore[arg-type]
    needs = Estimate(weights=fixed, buffers=0, per_cell=1024)
    size: ContextSize = context_size(_header(context), config, slots, needs, memory)
    return size.length.value, size.cells.value


def test_with_memory_enough_every_slot_gets_cells() -> None:
    assert _sizes(8192, None) == (8192, 8 * 2048)
    assert _sizes(8192, GIB, slots=2) == (8192, 8192)  # a whole context is the least
    assert _sizes(1024, GIB, slots=4) == (1024, 4096)  # no slot can use more
    assert _sizes(131072, None) == (131072, 131072)


def test_defaults_take_half_of_free_memory() -> None:
    assert _sizes(8192, 16 * MIB + MIB, fixed=MIB) == (8192, 8192)
    assert _sizes(8192, 8 * MIB + MIB, fixed=MIB) == (4096, 4096)


def test_a_small_model_keeps_its_own_context_where_little_fits() -> None:
    assert _sizes(100, 300 * 1024) == (100, 256)


def test_a_shorter_default_context_says_why() -> None:
    needs = Estimate(weights=0, buffers=0, per_cell=1024)
    size = context_size(_header(8192), LoadConfig(), 8, needs, 8 * MIB)
    assert size.length.value == 4096
    assert "8192 tokens would take more than half of free memory" in size.length.reason


def test_a_default_context_has_an_end() -> None:
    assert _sizes(2**31 - 1, 64 * GIB) == (2**18, 2**18)
    assert _sizes(2**31 - 1, None) == (2**18, 2**18)
    assert _sizes(2**31 - 1, 64 * GIB, context_len=2**20) == (2**20, 2**20)


def test_an_asked_context_may_take_all_of_it() -> None:
    assert _sizes(8192, 8 * MIB, context_len=8000)[0] == 8000


def test_a_context_larger_than_memory_is_refused_with_the_estimate() -> None:
    with pytest.raises(OutOfMemoryError, match=r"0\.50 GiB of weights.*2\.00 GiB of KV") as caught:
        _sizes(2**21, 2 * GIB, fixed=GIB // 2, context_len=2**21)
    assert f"At most {3 * GIB // 2 // 1024} tokens fit" in str(caught.value)


def test_weights_larger_than_memory() -> None:
    with pytest.raises(OutOfMemoryError, match="Not even a small context fits"):
        _sizes(4096, GIB, fixed=2 * GIB)


def test_more_cells_than_memory_holds() -> None:
    with pytest.raises(OutOfMemoryError):
        _sizes(4096, 8 * MIB, options={"cache_cells": 9000})


@pytest.mark.parametrize("cells", [99, 0, -1, "many", True, 2**40])
def test_cells_have_to_hold_one_context(cells: object) -> None:
    with pytest.raises(InvalidOptionError, match="cache_cells"):
        _sizes(4096, None, context_len=100, options={"cache_cells": cells})


def test_asked_cells_are_rounded_as_llama_cpp_does() -> None:
    assert _sizes(4096, None, context_len=100, options={"cache_cells": 300}) == (100, 512)


def test_a_context_beyond_the_models_own() -> None:
    with pytest.raises(InvalidOptionError, match="at most 4096"):
        _sizes(4096, None, context_len=4097)


def test_a_model_that_does_not_say_its_context() -> None:
    with pytest.raises(InvalidModelError, match=r"llama\.context_length"):
        _sizes(0, None)


@given(
    context=st.integers(1, 2**20),
    slots=st.integers(1, 192),
    memory=st.none() | st.integers(0, 2**36),
    fixed=st.integers(0, 2**34),
    asked=st.integers(0, 2**20),
)
def test_whatever_is_chosen_fits_and_holds_a_context(
    context: int, slots: int, memory: int | None, fixed: int, asked: int
) -> None:
    asked = min(asked, context)
    try:
        length, cells = _sizes(context, memory, slots, fixed, context_len=asked)
    except OutOfMemoryError:
        assert memory is not None
        least = -(-(asked or 1) // 256) * 256
        assert fixed + least * 1024 > memory  # what was asked for, or anything at all
        return
    assert cells % 256 == 0
    assert cells >= length
    assert length == (asked or length) <= context
    assert asked or length <= 2**18
    assert memory is None or fixed + cells * 1024 <= memory


def test_the_estimate_of_the_cache_is_what_llama_cpp_allocates(
    smollm2_gguf: Path, gemma3_gguf: Path, tiny_gguf: TinyGguf, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (smollm2_gguf, gemma3_gguf, tiny_gguf()):
        header = read_header(path)
        assert _allocated(path, 512, caplog) == pytest.approx(
            512 * header.cell_bytes / MIB, abs=0.02
        )


def _allocated(path: Path, cells: int, caplog: pytest.LogCaptureFixture) -> float:
    """MiB of the KV buffers, as the library's log tells them."""
    llama = load_library()
    parameters = llama.llama_context_default_params()
    parameters.n_ctx, parameters.kv_unified, parameters.swa_full = cells, True, True
    model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
    with caplog.at_level(logging.INFO, "llama.cpp"):
        context = llama.llama_init_from_model(model, parameters)
    lines = [record.getMessage() for record in caplog.records]
    caplog.clear()
    llama.llama_free(context)
    llama.llama_model_free(model)
    sizes = [line.split("=")[1].split()[0] for line in lines if "KV buffer size" in line]
    assert sizes
    return sum(map(float, sizes))


def test_what_else_is_estimated(smollm2_gguf: Path) -> None:
    header, files = read_header(smollm2_gguf), find_files(smollm2_gguf)
    flash = estimate(header, files, outputs=73, n_ubatch=512, flash=True)
    assert flash.weights == smollm2_gguf.stat().st_size
    # llama.cpp says for this model: 13.69 MiB of output, 33.66 MiB of compute buffer
    buffers = flash.total(16384) - flash.weights - 16384 * header.cell_bytes
    assert 0.7 < buffers / (47.35 * MIB) < 1.3
    plain = estimate(header, files, outputs=73, n_ubatch=512, flash=False)
    # and 372.28 MiB without flash attention
    buffers = plain.total(16384) - plain.weights - 16384 * header.cell_bytes
    assert 0.7 < buffers / (385.97 * MIB) < 1.3


def test_all_layers_on_gpus_count_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core_llama_cpp.checkpoint.estimate.available_bytes", lambda: GIB)
    assert free_memory([], -1) == GIB
    assert free_memory([GPU], 0) == GIB
    assert free_memory([GPU, GPU], -1) == 12 * GIB
    assert free_memory([GPU], 7) == 7 * GIB


def test_a_gpu_that_does_not_tell_its_memory() -> None:
    silent = GgmlDevice("Vulkan", "Vulkan0", "a GPU", DeviceType.GPU)
    assert free_memory([silent], -1) is None
