"""``typical_p`` against llama.cpp's own sampler."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt
import pytest

from core_runtime.sequences import sampling

Row = npt.NDArray[np.float32]


def llama_cpp_typical(row: Row, typical_p: float) -> set[int]:
    """Return the tokens that llama.cpp's own sampler leaves."""
    import llama_cpp

    tokens = (llama_cpp.llama_token_data * len(row))(
        *(llama_cpp.llama_token_data(id, float(value), 0.0) for id, value in enumerate(row))
    )
    candidates = llama_cpp.llama_token_data_array(tokens, len(row), -1, False)
    sampler = llama_cpp.llama_sampler_init_typical(typical_p, 1)
    try:
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(candidates))
        return {candidates.data[place].id for place in range(candidates.size)}
    finally:
        llama_cpp.llama_sampler_free(sampler)


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("typical_p", [0.001, 0.1, 0.5, 0.9, 0.99])
def test_the_typical_tokens_are_those_of_llama_cpp(spread: float, typical_p: float) -> None:
    unequal = []
    for seed in range(20):
        row = np.random.default_rng(seed).normal(0, spread, 500).astype(np.float32)
        ours = set(np.flatnonzero(np.isfinite(sampling.typical(row, typical_p))).tolist())
        unequal += [differing] if (differing := ours ^ llama_cpp_typical(row, typical_p)) else []
    # llama.cpp adds up float32, and what that rounds depends on the machine's instructions.
    assert len(unequal) <= 1
    assert all(len(differing) <= 2 for differing in unequal)
