"""The devices that ``infer-cli backends`` lists, and which build of llama.cpp is installed."""

from __future__ import annotations

from collections.abc import Sequence

from core.types import Choice, Device
from core_llama_cpp.ggml import DeviceType, GgmlDevice

PLAIN = "plain build"


def reported(found: Sequence[GgmlDevice]) -> tuple[Device, ...]:
    """GPUs first, then the processor with what computes its matrix products."""
    gpus = [_gpu(device) for device in found if device.is_gpu]
    cpus = [_cpu(device, found) for device in found if device.type is DeviceType.CPU]
    return (*gpus, *cpus)


def build_name(found: Sequence[GgmlDevice]) -> str:
    """``OpenBLAS``, ``Accelerate`` and the like; "plain build" without a BLAS."""
    blas = [device.description for device in found if device.backend == "BLAS"]
    return blas[0] if blas else PLAIN


def chosen_device(found: Sequence[GgmlDevice], gpus: Sequence[GgmlDevice]) -> Choice:
    """Where a model will run."""
    if gpus:
        names = ", ".join(f"{device.name} ({device.description})" for device in gpus)
        return Choice("device", names, "what ggml reports, and gpu_layers is not 0")
    cpu = next((device for device in found if device.type is DeviceType.CPU), None)
    name = cpu.description if cpu else "CPU"
    has_gpu = any(device.is_gpu for device in found)
    return Choice("device", name, "gpu_layers is 0" if has_gpu else "this build reports no GPU")


def chosen_blas(found: Sequence[GgmlDevice]) -> Choice:
    """Which build of llama.cpp this is, as to matrix products on the CPU."""
    name = build_name(found)
    if name == PLAIN:
        reason = "ggml's own kernels; long prompts run faster with OpenBLAS: docs/llama_cpp.md"
        return Choice("blas", name, reason)
    return Choice("blas", name, "llama.cpp was built with it, for batches of 32 tokens and more")


def _gpu(device: GgmlDevice) -> Device:
    return Device(device.description, "gpu", device.memory_total, device.backend)


def _cpu(device: GgmlDevice, found: Sequence[GgmlDevice]) -> Device:
    return Device(device.description, "cpu", device.memory_total, build_name(found))
