"""Whether MLX can run here, and on what: decided from facts that cost no import of MLX.

mlx-cpu and mlx-cuda-12/13 all install ``mlx/lib/libmlx.so``: the last one installed wins, and
which one that is cannot be told afterwards.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass

MINIMUM = (0, 32)  # before it, fast.rope was wrong for batches on Metal (ml-explore/mlx#3498)
_LINUX_BUILDS = ("mlx-cpu", "mlx-cuda-12", "mlx-cuda-13")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the machine is: ``installed`` maps MLX's distributions to their versions."""

    system: str
    machine: str
    installed: Mapping[str, str]
    cuda_devices: int

    @property
    def builds(self) -> list[str]:
        """The compiled Linux builds of MLX that are installed."""
        return [name for name in _LINUX_BUILDS if name in self.installed]


def gather_facts() -> Facts:
    """Read the facts of this machine."""
    return Facts(sys.platform, platform.machine(), _installed(), _cuda_devices())


def metal_reason(facts: Facts) -> str | None:
    """Why MLX cannot use Metal; None when it can."""
    if facts.system != "darwin" or facts.machine != "arm64":
        return (
            f"Metal needs a Mac with Apple silicon, and this is {facts.system} on {facts.machine}."
        )
    return _mlx_reason(facts, "core[mlx]")


def cuda_reason(facts: Facts) -> str | None:
    """Why MLX cannot use CUDA; None when it can."""
    if facts.system != "linux":
        return f"MLX uses CUDA on Linux only, and this is {facts.system}."
    if not any(name.startswith("mlx-cuda") for name in facts.builds):
        return "MLX's CUDA build is not installed: pip install 'core[mlx-cuda]'"
    if reason := _mlx_reason(facts, "core[mlx-cuda]"):
        return reason
    if facts.cuda_devices == 0:
        return "no CUDA device answers. Check the NVIDIA driver with nvidia-smi."
    return None


def cpu_reason(facts: Facts) -> str | None:
    """Why MLX cannot use the CPU; None when it can."""
    return _mlx_reason(facts, "core[mlx]")


def _mlx_reason(facts: Facts, extra: str) -> str | None:
    install = f"pip install '{extra}'"
    version = facts.installed.get("mlx")
    if version is None:
        return f"MLX is not installed: {install}"
    if _release(version) < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        return f"MLX {version} is too old, {wanted} is needed: {install} --upgrade"
    if facts.system != "linux":
        return None
    if not facts.builds:
        return f"only MLX's bindings are installed, without a compiled build: {install}"
    if len(facts.builds) > 1:
        return (
            f"{' and '.join(facts.builds)} are both installed and overwrite each other's files. "
            f"Uninstall all of them, then {install}"
        )
    return None


def _release(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())


def _installed() -> dict[str, str]:
    found = {}
    for name in ("mlx", *_LINUX_BUILDS):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cuda_devices() -> int:
    """How many devices the CUDA driver reports; 0 without a driver."""
    if sys.platform != "linux":
        return 0
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
            return 0
    except (OSError, AttributeError):
        return 0
    return count.value
