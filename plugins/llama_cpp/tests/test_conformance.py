"""The conformance suite on the real models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core_llama_cpp.capabilities import BACKEND_CAPABILITIES

Certify = Callable[[str, Path], set[str]]


@pytest.mark.long  # its limits reckon with a machine alone: JOBS=1
def test_llama_cpp_is_certified(certify: Certify, smollm2_gguf: Path) -> None:
    assert certify("llama_cpp", smollm2_gguf) == {each.value for each in BACKEND_CAPABILITIES}


@pytest.mark.long  # its limits reckon with a machine alone: JOBS=1
def test_llama_cpp_is_certified_with_another_model(certify: Certify, gemma3_gguf: Path) -> None:
    assert certify("llama_cpp", gemma3_gguf) == {each.value for each in BACKEND_CAPABILITIES}
