"""The conformance suite on the real models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core_llama_cpp.capabilities import BACKEND_CAPABILITIES

Certify = Callable[..., set[str]]

# One row and one thread keep logits to 0.001; with 2.0, no check could tell what a filter leaves.
EXACT = ("-O", "n_threads=1", "-O", "parallel_slots=1")


@pytest.mark.long  # its limits reckon with a machine alone: JOBS=1
def test_llama_cpp_is_certified(certify: Certify, smollm2_gguf: Path) -> None:
    assert certify("llama_cpp", smollm2_gguf, *EXACT) == {
        each.value for each in BACKEND_CAPABILITIES
    }


@pytest.mark.long  # its limits reckon with a machine alone: JOBS=1
def test_llama_cpp_is_certified_with_another_model(certify: Certify, gemma3_gguf: Path) -> None:
    assert certify("llama_cpp", gemma3_gguf, *EXACT) == {
        each.value for each in BACKEND_CAPABILITIES
    }
