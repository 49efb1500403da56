"""Availability at its seam: made-up machines, since only one of them is at hand."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from core_mlx_native.availability import (
    MachineFacts,
    cpu_reason,
    cuda_reason,
    gather_facts,
    metal_reason,
)

MAC = MachineFacts("darwin", "arm64", {"mlx": "0.32.4"}, 0)
LINUX = MachineFacts("linux", "x86_64", {"mlx": "0.32.4", "mlx-cpu": "0.32.4"}, 0)
NVIDIA = MachineFacts("linux", "x86_64", {"mlx": "0.32.4", "mlx-cuda-13": "0.32.4"}, 1)


def with_packages(facts: MachineFacts, installed: Mapping[str, str]) -> MachineFacts:
    return replace(facts, installed=installed)


def test_each_backend_is_available_where_it_belongs() -> None:
    assert metal_reason(MAC) is None
    assert cpu_reason(MAC) is None
    assert cpu_reason(LINUX) is None
    assert cuda_reason(NVIDIA) is None
    assert cpu_reason(NVIDIA) is None  # the CUDA build computes on the CPU, too


@pytest.mark.parametrize("facts", [LINUX, NVIDIA, replace(MAC, machine="x86_64")])
def test_metal_needs_apple_silicon(facts: MachineFacts) -> None:
    reason = metal_reason(facts)
    assert reason is not None
    assert "Apple silicon" in reason
    assert facts.machine in reason


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (MAC, "Linux only"),
        (LINUX, "no NVIDIA GPU was found"),
        (replace(LINUX, cuda_devices=1), "in an environment without core[mlx]"),
        (replace(LINUX, cuda_devices=1), "pip install -r DIST/mlx-cuda.txt"),
        (replace(NVIDIA, cuda_devices=0), "nvidia-smi"),
        (with_packages(NVIDIA, {"mlx-cuda-13": "0.32.4"}), "not installed"),
    ],
)
def test_cuda_says_what_is_missing(facts: MachineFacts, word: str) -> None:
    assert word in (cuda_reason(facts) or "")


@pytest.mark.parametrize(
    ("driver", "build", "words"),
    [
        (
            12040,
            "mlx-cuda-13",
            ("CUDA 13; the installed one supports CUDA up to 12.4", "-r DIST/mlx-cuda12.txt"),
        ),
        (12090, None, ("not installed", "-r DIST/mlx-cuda12.txt")),
        (13000, None, ("not installed", "-r DIST/mlx-cuda.txt")),
        (
            11080,
            "mlx-cuda-12",
            ("CUDA 12; the installed one supports CUDA up to 11.8", "Update the driver."),
        ),
        (
            11080,
            "mlx-cuda-13",
            ("CUDA 13; the installed one supports CUDA up to 11.8", "Update the driver."),
        ),
    ],
)
def test_cuda_says_which_build_the_driver_runs(
    driver: int, build: str | None, words: tuple[str, ...]
) -> None:
    installed = {"mlx": "0.32.4", **({build: "0.32.4"} if build else {})}
    reason = cuda_reason(replace(NVIDIA, installed=installed, cuda_driver=driver)) or ""
    assert all(word in reason for word in words)
    assert "without core[mlx]" in reason or driver < 12000


@pytest.mark.parametrize(
    ("driver", "build"),
    [(13000, "mlx-cuda-13"), (13010, "mlx-cuda-12"), (12000, "mlx-cuda-12"), (0, "mlx-cuda-13")],
)
def test_a_driver_runs_its_cuda_and_older_ones(driver: int, build: str) -> None:
    """Where nobody tells its version, it is tried."""
    installed = {"mlx": "0.32.4", build: "0.32.4"}
    assert cuda_reason(replace(NVIDIA, installed=installed, cuda_driver=driver)) is None


class Driver:
    """A made-up libcuda, whose functions return these codes and write these numbers."""

    def __init__(self, count: int = 2, version: int = 12040, failing: str = "") -> None:
        self._values = {"cuDeviceGetCount": count, "cuDriverGetVersion": version}
        self._failing = failing

    def __getattr__(self, name: str) -> Callable[[Any], int]:
        def call(argument: Any) -> int:
            if name in self._values:
                argument._obj.value = self._values[name]
            return int(name == self._failing)

        return call


@pytest.mark.parametrize(
    ("driver", "found"),
    [
        (Driver(), (2, 12040)),
        (Driver(failing="cuDriverGetVersion"), (2, 0)),
        (Driver(failing="cuDeviceGetCount"), (0, 0)),
        (Driver(failing="cuInit"), (0, 0)),
    ],
)
def test_the_driver_is_asked_for_its_devices_and_its_version(
    driver: Driver, found: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    facts = gather_facts()
    assert (facts.cuda_devices, facts.cuda_driver) == found


@pytest.mark.parametrize(
    ("installed", "word"),
    [
        ({}, "MLX is not installed. Install it with: pip install -r DIST/mlx.txt"),
        ({"mlx": "0.31.9", "mlx-cpu": "0.31.9"}, "0.31.9 is too old (0.32 or newer is required)"),
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
