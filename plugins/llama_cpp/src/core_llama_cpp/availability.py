"""Availability of llama.cpp and of devices for it, decided without importing llama_cpp."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

from core.plugins import install_command, release
from core.types import Choice, Device
from core_llama_cpp import ggml
from core_llama_cpp.ggml import DeviceType, GgmlDevice

PLAIN = "plain build"
MINIMUM = (0, 3, 36)  # the oldest whose C structures and kernels are tested
DISTRIBUTION = "llama-cpp-python"
ROCM = "ROCm"  # ggml's name for its HIP part
DRIVER = Path("/dev/kfd")
"""The driver's device, without which ROCm sees no GPU."""

_INSTALL = f"{install_command('llama-cpp', '--upgrade')} (compiles; requires g++ or clang)"
_REBUILD = f"pip install --force-reinstall --no-deps --no-cache-dir {DISTRIBUTION}"
ROCM_BUILD = f"CMAKE_ARGS='-DGGML_HIP=on' {_REBUILD}"


def reported(devices: Sequence[GgmlDevice]) -> tuple[Device, ...]:
    """Return the devices as users see them: GPUs first, then the CPU with its BLAS."""
    gpus = [_gpu(device) for device in devices if device.is_gpu]
    cpus = [_cpu(device, devices) for device in devices if device.type is DeviceType.CPU]
    return (*gpus, *cpus)


def build_name(devices: Sequence[GgmlDevice]) -> str:
    """Return the name of the BLAS, such as ``OpenBLAS`` or ``Accelerate``, or `PLAIN` without."""
    blas = [device.description for device in devices if device.backend == "BLAS"]
    return blas[0] if blas else PLAIN


def chosen_device(devices: Sequence[GgmlDevice], gpus: Sequence[GgmlDevice]) -> Choice:
    """Return the device on which a model will run, as a choice with its reason."""
    if gpus:
        names = ", ".join(f"{device.name} ({device.description})" for device in gpus)
        return Choice("device", names, "reported by ggml, and gpu_layers is not 0")
    cpu = next((device for device in devices if device.type is DeviceType.CPU), None)
    name = cpu.description if cpu else "CPU"
    has_gpu = any(device.is_gpu for device in devices)
    return Choice("device", name, "gpu_layers is 0" if has_gpu else "this build reports no GPU")


def chosen_blas(devices: Sequence[GgmlDevice]) -> Choice:
    """Return the BLAS of this build for the CPU, as a choice with its reason."""
    name = build_name(devices)
    if name == PLAIN:
        reason = "ggml's own kernels; long prompts run faster with OpenBLAS: docs/llama_cpp.md"
        return Choice("blas", name, reason)
    return Choice(
        "blas", name, "llama.cpp was built with it; used for batches of 32 tokens and more"
    )


def _gpu(device: GgmlDevice) -> Device:
    return Device(device.description, "gpu", device.memory_total, device.backend)


def _cpu(device: GgmlDevice, devices: Sequence[GgmlDevice]) -> Device:
    return Device(device.description, "cpu", device.memory_total, build_name(devices))


def library_reason() -> str | None:
    """Return the reason why llama.cpp cannot be used; None if it can. Opens its shared library."""
    try:
        version = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return f"{DISTRIBUTION} is not installed. Install it with: {_INSTALL}"
    if release(version, 3) < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        return f"{DISTRIBUTION} {version} is too old: {wanted} is required. Upgrade it: {_INSTALL}"
    return _opening_reason(version)


def rocm_reason(devices: Sequence[GgmlDevice]) -> str | None:
    """Return the reason why ggml cannot use an AMD GPU, from the devices it reports.

    None if it can.
    """
    if rocm_devices(devices):
        return None
    if not DRIVER.exists():
        return f"this machine has no AMD GPU with ROCm's driver ({DRIVER} does not exist)."
    names = ", ".join(f"{device.name} ({device.description})" for device in devices) or "none"
    return (
        f"ggml reports no ROCm device, only: {names}. Install ROCm with its compiler, then build "
        f"llama.cpp for it: {ROCM_BUILD}"
    )


def rocm_devices(devices: Sequence[GgmlDevice]) -> list[GgmlDevice]:
    """Return the GPUs that ggml's HIP part offers."""
    return [device for device in devices if device.backend == ROCM and device.is_gpu]


def _opening_reason(version: str) -> str | None:
    path = ggml.library_path()
    if path is None or not path.is_file():
        where = f"{path} is missing" if path else "its package is missing"
        return (
            f"the installation of {DISTRIBUTION} {version} is broken: {where}. Install it again: "
            f"{_REBUILD}"
        )
    try:
        ggml.open_library(path)
    except (OSError, AttributeError) as error:
        return (
            f"llama.cpp's shared library cannot be opened ({error}). Install the missing library, "
            f"or build it again: {_REBUILD}"
        )
    return None
