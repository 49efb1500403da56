"""Whether llama.cpp runs here, from what is installed and what ggml reports."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from core_llama_cpp import availability, ggml
from core_llama_cpp.ggml import DeviceType, GgmlDevice

CPU = GgmlDevice("CPU", "CPU", "AMD EPYC", DeviceType.CPU, memory_total=8)
BLAS = GgmlDevice("BLAS", "BLAS", "OpenBLAS", DeviceType.ACCEL)
ROCM = GgmlDevice("ROCm", "ROCm0", "AMD Radeon RX 7900 XTX", DeviceType.GPU, 5, 24)
CUDA = GgmlDevice("CUDA", "CUDA0", "NVIDIA L4", DeviceType.GPU, 5, 24)


def test_the_installed_library_opens() -> None:
    assert availability.library_reason() is None
    found = ggml.devices()
    assert [device.name for device in found if device.type is DeviceType.CPU] == ["CPU"]
    cpu = next(device for device in found if device.type is DeviceType.CPU)
    assert cpu.description
    assert cpu.memory_total > 2**28


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert "pip install --upgrade -r DIST/llama-cpp.txt" in (availability.library_reason() or "")


@pytest.mark.parametrize("version", ["0.2.90", "0.3.9", "0.3.35", "0.3"])
def test_too_old(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    reason = availability.library_reason() or ""
    assert f"llama-cpp-python {version} is too old: 0.3.36 is required" in reason


@pytest.mark.parametrize("version", ["0.3.36", "0.3.36+cu124", "0.3.100", "0.4.0", "1.0"])
def test_new_enough(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    assert availability.library_reason() is None


def test_an_installation_without_its_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    reason = availability.library_reason() or ""
    assert "is broken" in reason
    assert str(tmp_path) in reason


def test_a_library_that_does_not_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where libgomp or the BLAS it was built with is not installed."""
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    path = ggml.library_path()
    assert path is not None
    path.write_bytes(b"no library")
    assert "cannot be opened" in (availability.library_reason() or "")


def test_no_build_is_advised_where_no_such_gpu_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(availability, "DRIVER", tmp_path / "kfd")
    reason = availability.rocm_reason([CPU]) or ""
    assert "no AMD GPU" in reason
    assert "pip" not in reason
    assert availability.rocm_reason([ROCM]) is None


def test_rocm_only_with_a_rocm_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(availability, "DRIVER", tmp_path)
    assert availability.rocm_reason([ROCM, CPU]) is None
    for found in ([], [CPU], [CPU, BLAS], [CUDA, CPU]):
        reason = availability.rocm_reason(found) or ""
        assert "CMAKE_ARGS='-DGGML_HIP=on' pip install" in reason
        assert all(device.description in reason for device in found)


def test_devices_as_they_are_listed() -> None:
    listed = availability.reported([CPU, ROCM, BLAS])
    assert [(device.kind, device.name, device.detail) for device in listed] == [
        ("gpu", "AMD Radeon RX 7900 XTX", "ROCm"),
        ("cpu", "AMD EPYC", "OpenBLAS"),
    ]
    assert [device.memory_bytes for device in listed] == [24, 8]


def test_the_build_is_named() -> None:
    assert availability.build_name([CPU]) == "plain build"
    assert availability.build_name([BLAS, CPU]) == "OpenBLAS"
    assert availability.chosen_blas([CPU, BLAS]).value == "OpenBLAS"
    assert "docs/llama_cpp.md" in availability.chosen_blas([CPU]).reason


def test_where_a_model_runs() -> None:
    assert availability.chosen_device([ROCM, CPU], [ROCM]).value == "ROCm0 (AMD Radeon RX 7900 XTX)"
    assert availability.chosen_device([ROCM, CPU], []).reason == "gpu_layers is 0"
    assert availability.chosen_device([CPU], []).reason == "this build reports no GPU"


def test_a_device_kind_of_a_later_ggml() -> None:
    assert not GgmlDevice("NPU", "NPU0", "", DeviceType(17)).is_gpu
