"""The backends ``llama_cpp`` and ``rocm``, the latter on device lists as ggml reports them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from core.errors import (
    BackendUnavailableError,
    InvalidModelError,
    InvalidOptionError,
    ModelNotFoundError,
    UnsupportedOptionError,
)
from core.extensions import DeviceReporting, ModelProbe
from core.options import LoadConfig
from core.types import Choice
from core_llama_cpp import availability, ggml, loading
from core_llama_cpp.backend import LlamaCpp, Rocm
from core_llama_cpp.ggml import DeviceType, GgmlDevice

TinyGguf = Callable[..., Path]
Report = Callable[..., None]

CPU = GgmlDevice("CPU", "CPU", "AMD EPYC", DeviceType.CPU, 2**34, 2**34)
ROCM = GgmlDevice("ROCm", "ROCm0", "AMD Radeon RX 7900 XTX", DeviceType.GPU, 2**33, 2**34)
APU = GgmlDevice("ROCm", "ROCm1", "AMD Radeon 780M", DeviceType.IGPU, 2**33, 2**34)
VULKAN = GgmlDevice("Vulkan", "Vulkan0", "AMD Radeon (RADV)", DeviceType.GPU, 2**33, 2**34)


class Opened:
    """What `open_model` was called with, in place of a load."""

    def __init__(
        self,
        backend: str,
        path: object,
        config: LoadConfig,
        gpus: Sequence[GgmlDevice],
        chosen: Sequence[Choice],
    ) -> None:
        self.backend, self.gpus = backend, list(gpus)
        self.chosen = {choice.name: choice for choice in chosen}


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Report:
    """Has ggml report these devices, and loads nothing."""

    def devices(*found: GgmlDevice) -> None:
        monkeypatch.setattr(ggml, "devices", lambda: found)
        monkeypatch.setattr(loading, "open_model", Opened)

    return devices


def _load(backend: LlamaCpp, /, **options: Any) -> Any:
    return backend.load_model("m.gguf", LoadConfig(**options))


def test_the_entry_points_name_them() -> None:
    found = {point.name: point.load() for point in entry_points(group="core.backends")}
    assert (found["llama_cpp"], found["rocm"]) == (LlamaCpp, Rocm)


def test_what_both_say_of_themselves() -> None:
    for backend in (LlamaCpp(), Rocm()):
        assert backend.formats == {"gguf"}
        assert isinstance(backend, ModelProbe)
        assert isinstance(backend, DeviceReporting)


def test_this_machine() -> None:
    backend = LlamaCpp()
    assert backend.available()
    assert backend.unavailable_reason() is None
    assert any(device.kind == "cpu" and device.detail for device in backend.devices())


def test_rocm_without_its_device_says_what_there_is_and_how_to_build(
    report: Report, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report(VULKAN, CPU)
    monkeypatch.setattr(availability, "DRIVER", tmp_path)
    backend = Rocm()
    assert not backend.available()
    assert backend.devices() == ()
    reason = backend.unavailable_reason() or ""
    assert "Vulkan0 (AMD Radeon (RADV)), CPU (AMD EPYC)" in reason
    assert availability.ROCM_BUILD in reason
    with pytest.raises(BackendUnavailableError, match="reports no ROCm device"):
        _load(backend)


def test_rocm_without_its_driver_is_not_told_to_build(
    report: Report, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report(VULKAN, CPU)
    monkeypatch.setattr(availability, "DRIVER", tmp_path / "kfd")
    reason = Rocm().unavailable_reason() or ""
    assert "no AMD GPU with ROCm's driver" in reason
    assert availability.ROCM_BUILD not in reason


def test_rocm_takes_its_own_devices_alone(report: Report) -> None:
    report(ROCM, VULKAN, APU, CPU)
    backend = Rocm()
    assert backend.available()
    assert [device.name for device in backend.devices()] == [
        "AMD Radeon RX 7900 XTX",
        "AMD Radeon 780M",
        "AMD EPYC",
    ]
    opened = _load(backend, backend="rocm")
    assert opened.backend == "rocm"
    assert opened.gpus == [ROCM, APU]
    assert opened.chosen["backend"].reason == "asked for by name"


@pytest.mark.parametrize(("layers", "gpus"), [(-1, [ROCM]), (0, []), (7, [ROCM])])
def test_layers_with_a_gpu(report: Report, layers: int, gpus: list[GgmlDevice]) -> None:
    report(ROCM, CPU)
    for backend in (LlamaCpp(), Rocm()):
        opened = _load(backend, gpu_layers=layers)
        assert opened.gpus == gpus
        assert opened.chosen["device"].value == (
            "ROCm0 (AMD Radeon RX 7900 XTX)" if gpus else "AMD EPYC"
        )


@pytest.mark.parametrize("layers", [-1, 0])
def test_layers_without_a_gpu(report: Report, layers: int) -> None:
    report(CPU)
    assert _load(LlamaCpp(), gpu_layers=layers).gpus == []


def test_layers_for_a_gpu_that_is_not_there(report: Report) -> None:
    report(CPU)
    with pytest.raises(UnsupportedOptionError, match="reports no GPU") as caught:
        _load(LlamaCpp(), gpu_layers=1)
    assert caught.value.option == "gpu_layers"


def test_the_build_is_among_the_choices(report: Report) -> None:
    report(CPU, GgmlDevice("BLAS", "BLAS", "OpenBLAS", DeviceType.ACCEL))
    assert _load(LlamaCpp()).chosen["blas"].value == "OpenBLAS"
    assert LlamaCpp().devices()[0].detail == "OpenBLAS"


def test_an_unknown_option_lists_the_known(report: Report) -> None:
    report(CPU)
    with pytest.raises(InvalidOptionError, match=r"n_thread'.*cache_cells.*n_threads"):
        _load(LlamaCpp(), options={"n_thread": 2})


def test_an_unavailable_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "library_reason", lambda: "it is too old")
    for backend in (LlamaCpp(), Rocm()):
        assert backend.unavailable_reason() == "it is too old"
        assert backend.devices() == ()
        with pytest.raises(BackendUnavailableError, match="it is too old"):
            _load(backend)


def test_refusals_come_from_the_header(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    backend = LlamaCpp()
    assert backend.refusal(tiny_gguf()) is None
    assert "gpt17" in (backend.refusal(tiny_gguf(architecture="gpt17")) or "")
    assert backend.refusal(tmp_path / "nothing")


def test_files_are_looked_at_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        LlamaCpp().load_model(tmp_path / "nothing.gguf", LoadConfig())
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(8))
    with pytest.raises(InvalidModelError):
        LlamaCpp().load_model(tmp_path / "m.gguf", LoadConfig())


def test_a_load_without_descriptors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(loading, "open_model", fails)
    with pytest.raises(BackendUnavailableError, match="Too many open files"):
        LlamaCpp().load_model(tmp_path, LoadConfig())
