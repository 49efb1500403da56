"""The conformance suite on the real models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core_mlx_lm_bridge.capabilities import BACKEND_CAPABILITIES

Certify = Callable[[str, Path], set[str]]


@pytest.fixture(autouse=True)
def workers_have_a_fast_blas(fast_blas: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in fast_blas.items():
        monkeypatch.setenv(name, value)


@pytest.mark.long  # its limits reckon with a machine alone: JOBS=1
def test_mlx_lm_is_certified(certify: Certify, smollm2_dir: Path) -> None:
    assert certify("mlx_lm", smollm2_dir) == {each.value for each in BACKEND_CAPABILITIES}


@pytest.mark.long  # its limits reckon with a machine alone: JOBS=1
def test_mlx_lm_is_certified_with_another_model(certify: Certify, gemma3_dir: Path) -> None:
    assert certify("mlx_lm", gemma3_dir) == {each.value for each in BACKEND_CAPABILITIES}
