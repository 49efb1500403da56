"""The devices that ``infer-cli backends`` lists, from facts that cost no import of MLX."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

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


def free_memory(on_gpu: bool) -> int:
    """What is free on the device, in bytes; 0 where nobody tells. Imports MLX for a GPU."""
    if not on_gpu or platform.system() == "Darwin":  # whose GPU shares the machine's memory
        return _available()
    import mlx.core as mx

    facts = mx.device_info(mx.gpu)
    memory = facts.get("free_memory", facts.get("memory_size", facts.get("total_memory", 0)))
    return max(0, int(memory) - mx.get_active_memory())


def memory_bytes() -> int:
    """Physical memory; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def _available() -> int:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return memory_bytes() // 2  # macOS: no count of what it would give up
    found = re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
