"""The devices that ``infer-cli backends`` lists, from facts that cost no import of MLX."""

from __future__ import annotations

import platform
from pathlib import Path

from core.serving.host_memory import available_bytes, physical_bytes
from core.types import Device
from core_mlx_native.blas import ensure_blas


def cpu_device() -> Device:
    """This machine's processor, with the BLAS that computes its matrix products."""
    return Device(_processor(), "cpu", memory_bytes(), ensure_blas().name)


def metal_device() -> Device:
    """The GPU of an Apple chip, which shares the machine's memory."""
    return Device(_processor(), "gpu", memory_bytes(), "Metal")


def cuda_device() -> Device:
    """The first CUDA device, as MLX describes it. Imports MLX: the driver has no lighter way."""
    import mlx.core as mx

    facts = mx.device_info(mx.gpu)
    memory = facts.get("memory_size", facts.get("total_memory", 0))
    return Device(str(facts.get("device_name", "CUDA device")), "gpu", int(memory), "CUDA")


def free_memory(on_gpu: bool) -> int | None:
    """What is free on the device, in bytes; None where nobody tells. Imports MLX for a GPU."""
    if platform.system() == "Darwin":  # whose GPU shares the machine's memory
        return memory_bytes() // 2 or None  # no count of what it would give up
    if not on_gpu:
        return available_bytes()
    import mlx.core as mx

    facts = mx.device_info(mx.gpu)
    memory = facts.get("free_memory", facts.get("memory_size", facts.get("total_memory", 0)))
    return max(0, int(memory) - mx.get_active_memory()) or None


def memory_bytes() -> int:
    """Physical memory; 0 where the system does not tell."""
    return physical_bytes() or 0


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
