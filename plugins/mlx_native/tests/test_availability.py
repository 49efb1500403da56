"""Availability at its seam: made-up machines, since only one of them is at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from core_mlx_native.availability import (
    Facts,
    cpu_reason,
    cuda_reason,
    gather_facts,
    metal_reason,
)

MAC = Facts("darwin", "arm64", {"mlx": "0.32.4"}, 0)
LINUX = Facts("linux", "x86_64", {"mlx": "0.32.4", "mlx-cpu": "0.32.4"}, 0)
NVIDIA = Facts("linux", "x86_64", {"mlx": "0.32.4", "mlx-cuda-13": "0.32.4"}, 1)


def with_packages(facts: Facts, installed: Mapping[str, str]) -> Facts:
    return replace(facts, installed=installed)


def test_each_backend_is_available_where_it_belongs() -> None:
    assert metal_reason(MAC) is None
    assert cpu_reason(MAC) is None
    assert cpu_reason(LINUX) is None
    assert cuda_reason(NVIDIA) is None
    assert cpu_reason(NVIDIA) is None  # the CUDA build computes on the CPU, too


@pytest.mark.parametrize("facts", [LINUX, NVIDIA, replace(MAC, machine="x86_64")])
def test_metal_needs_apple_silicon(facts: Facts) -> None:
    reason = metal_reason(facts)
    assert reason is not None
    assert "Apple silicon" in reason
    assert facts.machine in reason


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (MAC, "Linux only"),
        (LINUX, "pip install 'core[mlx-cuda]'"),
        (replace(NVIDIA, cuda_devices=0), "nvidia-smi"),
        (with_packages(NVIDIA, {"mlx-cuda-13": "0.32.4"}), "not installed"),
    ],
)
def test_cuda_says_what_is_missing(facts: Facts, word: str) -> None:
    assert word in (cuda_reason(facts) or "")


@pytest.mark.parametrize(
    ("installed", "word"),
    [
        ({}, "MLX is not installed: pip install 'core[mlx]'"),
        ({"mlx": "0.31.9", "mlx-cpu": "0.31.9"}, "0.31.9 is too old, 0.32 is needed"),
        ({"mlx": "0.32.4"}, "bindings"),
        ({"mlx": "0.32.4", "mlx-cpu": "0.32.4", "mlx-cuda-13": "0.32.4"}, "overwrite"),
    ],
)
def test_the_cpu_says_what_is_missing(installed: Mapping[str, str], word: str) -> None:
    assert word in (cpu_reason(with_packages(LINUX, installed)) or "")


def test_a_newer_major_version_is_not_too_old() -> None:
    assert cpu_reason(with_packages(LINUX, {"mlx": "1.0.0", "mlx-cpu": "1.0.0"})) is None
    assert cpu_reason(with_packages(LINUX, {"mlx": "0.33.0rc1", "mlx-cpu": "0.33"})) is None


def test_the_facts_of_this_machine_are_real() -> None:
    facts = gather_facts()
    assert facts.installed["mlx"]
    assert cpu_reason(facts) is None  # these tests run on it
