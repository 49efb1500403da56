"""Checks of whether, and on which device, MLX can run here; they need no import of MLX.

mlx-cpu and mlx-cuda-12/13 all install ``mlx/lib/libmlx.so``: the one installed last wins, and
cannot be identified afterwards.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from core.plugins import install_command, release
from core.types import Device
from core_mlx_native.cpu.blas import ensure_blas
from core_runtime.machine import available_bytes, physical_bytes
from core_runtime.processor import processor_name

MINIMUM = (0, 32)  # before it, fast.rope was wrong for batches on Metal (ml-explore/mlx#3498)
_DRIVERS = {"mlx-cuda-12": 12000, "mlx-cuda-13": 13000}  # minimum, as cuDriverGetVersion counts
_LINUX_BUILDS = ("mlx-cpu", *_DRIVERS)


def cpu_device() -> Device:
    """Return this machine's processor, with the BLAS for its matrix products."""
    return Device(_processor(), "cpu", memory_bytes(), ensure_blas().name)


def metal_device() -> Device:
    """Return the GPU of an Apple chip, which shares the machine's memory."""
    return Device(_processor(), "gpu", memory_bytes(), "Metal")


def cuda_device() -> Device:
    """Return the first CUDA device, as MLX describes it.

    Imports MLX, because the driver offers no cheaper way.
    """
    import mlx.core as mx

    facts = mx.device_info(mx.gpu)
    memory = facts.get("memory_size", facts.get("total_memory", 0))
    return Device(str(facts.get("device_name", "CUDA device")), "gpu", int(memory), "CUDA")


def free_memory(on_gpu: bool) -> int | None:
    """Return the free memory of the device in bytes; None if unknown.

    Imports MLX for a GPU.
    """
    if platform.system() == "Darwin":  # whose GPU shares the machine's memory
        return memory_bytes() // 2 or None  # its reclaimable memory is not reported
    if not on_gpu:
        return available_bytes()

    import mlx.core as mx

    facts = mx.device_info(mx.gpu)
    memory = facts.get("free_memory", facts.get("memory_size", facts.get("total_memory", 0)))
    return max(0, int(memory) - mx.get_active_memory()) or None


def memory_bytes() -> int:
    """Return the physical memory in bytes; 0 if the system does not report it."""
    return physical_bytes() or 0


def apple_chip() -> str:
    """Return the name of an Apple chip, e.g. "Apple M2 Max"; empty on other machines."""
    if platform.system() != "Darwin":
        return ""
    try:
        ask = ctypes.CDLL(None).sysctlbyname
    except (OSError, AttributeError):
        return ""
    name, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    if ask(b"machdep.cpu.brand_string", name, ctypes.byref(size), None, ctypes.c_size_t(0)):
        return ""
    return name.value.decode()


def _processor() -> str:
    return apple_chip() or processor_name()


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The facts about a machine; ``installed`` maps MLX's distributions to their versions.

    ``cuda_driver`` is the newest CUDA that the driver supports, 12040 for 12.4; 0 if unknown.
    """

    system: str
    machine: str
    installed: Mapping[str, str]
    cuda_devices: int
    cuda_driver: int = 0

    @property
    def builds(self) -> list[str]:
        """The compiled Linux builds of MLX that are installed."""
        return [name for name in _LINUX_BUILDS if name in self.installed]


def gather_facts() -> MachineFacts:
    """Collect the facts about this machine."""
    return MachineFacts(sys.platform, platform.machine(), _installed(), *_cuda())


def metal_reason(facts: MachineFacts) -> str | None:
    """Return the reason why MLX cannot use Metal; None if it can."""
    if facts.system != "darwin" or facts.machine != "arm64":
        return f"it requires a Mac with Apple silicon; this is {facts.system} on {facts.machine}."
    return _mlx_reason(facts, "mlx")


def cuda_reason(facts: MachineFacts) -> str | None:
    """Return the reason why MLX cannot use CUDA; None if it can."""
    if facts.system != "linux":
        return f"MLX supports CUDA on Linux only; this is {facts.system}."
    if facts.cuda_devices == 0:
        return "no NVIDIA GPU was found. If there is one, check its driver with nvidia-smi."

    # The driver limits which builds can run.
    extra = _cuda_extra(facts.cuda_driver)
    builds = [name for name in facts.builds if name in _DRIVERS]
    if not builds:
        return f"MLX's CUDA build is not installed. Install it with: {install_command(extra)}"
    if len(facts.builds) == 1 and 0 < facts.cuda_driver < _DRIVERS[builds[0]]:
        return _old_driver(builds[0], facts.cuda_driver)
    return _mlx_reason(facts, extra)


def _cuda_extra(driver: int) -> str:
    """Return the extra of core whose MLX build supports this driver."""
    return "mlx-cuda12" if 0 < driver < _DRIVERS["mlx-cuda-13"] else "mlx-cuda"


def _old_driver(build: str, driver: int) -> str:
    wanted = _DRIVERS[build]
    reason = (
        f"{build} requires a driver for CUDA {wanted // 1000}; the installed one supports CUDA up "
        f"to {driver // 1000}.{driver % 1000 // 10}. Update the driver"
    )
    if driver < _DRIVERS["mlx-cuda-12"]:
        return f"{reason}."
    return f"{reason}, or uninstall {build} and run: {install_command('mlx-cuda12')}"


def cpu_reason(facts: MachineFacts) -> str | None:
    """Return the reason why MLX cannot use the CPU; None if it can."""
    return _mlx_reason(facts, "mlx")


def _mlx_reason(facts: MachineFacts, extra: str) -> str | None:
    install = install_command(extra)
    version = facts.installed.get("mlx")
    if version is None:
        return f"MLX is not installed. Install it with: {install}"
    if release(version, 2) < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        return (
            f"MLX {version} is too old ({wanted} or newer is required). Upgrade it with: "
            f"{install_command(extra, '--upgrade')}"
        )

    # On Linux the compiled build is a separate distribution, and only one may be installed.
    if facts.system != "linux":
        return None
    if not facts.builds:
        return (
            "only MLX's Python bindings are installed, without a compiled build. Install one "
            f"with: {install}"
        )
    if len(facts.builds) > 1:
        return (
            f"{' and '.join(facts.builds)} are both installed and overwrite each other's files. "
            f"Uninstall all of them, then run: {install}"
        )
    return None


def _installed() -> dict[str, str]:
    versions = {}
    for name in ("mlx", *_LINUX_BUILDS):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _cuda() -> tuple[int, int]:
    """Return the CUDA driver's number of devices and its version; zeros without a driver."""
    if sys.platform != "linux":
        return 0, 0
    try:
        return _versions(ctypes.CDLL("libcuda.so.1"))
    except (OSError, AttributeError):
        return 0, 0


def _versions(driver: ctypes.CDLL) -> tuple[int, int]:
    count, version = ctypes.c_int(0), ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0, 0
    if driver.cuDriverGetVersion(ctypes.byref(version)):
        return count.value, 0
    return count.value, version.value
