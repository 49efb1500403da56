"""Availability of OpenVINO, and the instructions of this processor, without importing it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from functools import cache
from pathlib import Path

from core.plugins import install_command
from core.types import Device
from core_runtime.machine import physical_bytes

DISTRIBUTION = "openvino"
VERSION = (2026, 4)
"""The release whose paged attention has the inputs that `graph` gives it; later ones may not."""

_CPUINFO = Path("/proc/cpuinfo")
_BFLOAT16 = {"avx512_bf16": "AVX512_BF16", "amx_bf16": "AMX", "bf16": "ARM BF16"}
_INT8 = {
    "avx512_vnni": "AVX512_VNNI",
    "avx_vnni": "AVX_VNNI",
    "amx_int8": "AMX",
    "i8mm": "ARM I8MM",
}


@cache
def cpu_flags(cpuinfo: Path = _CPUINFO) -> frozenset[str]:
    """Return the instruction sets that Linux reports; empty where it does not say."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    names = (line.split(":", 1)[1] for line in lines if line.startswith(("flags", "Features")))
    return frozenset(next(names, "").split())


def bfloat16_instructions(flags: frozenset[str]) -> tuple[str, ...]:
    """Return the names of the processor's instructions for bfloat16 products."""
    return tuple(name for flag, name in _BFLOAT16.items() if flag in flags)


def int8_instructions(flags: frozenset[str]) -> tuple[str, ...]:
    """Return the names of the processor's instructions for products of 8-bit integers."""
    return tuple(name for flag, name in _INT8.items() if flag in flags)


def cpu_device() -> Device:
    """Return this machine's processor, with the instructions that OpenVINO uses on it."""
    flags = cpu_flags()
    used = dict.fromkeys((*bfloat16_instructions(flags), *int8_instructions(flags)))
    return Device(_processor(), "cpu", physical_bytes() or 0, ", ".join(used) or "float32 only")


def left_to_mlx() -> str | None:
    """Return why models are left to mlx_cpu, unless this backend is named; None if they are not."""
    flags = cpu_flags()
    if bfloat16_instructions(flags) or int8_instructions(flags):
        return None
    if importlib.util.find_spec("core_mlx_native") is None:
        return None
    return (
        "this processor has none of AVX512_BF16, AMX and VNNI, with which OpenVINO would be "
        "faster than mlx_cpu. Name backend='openvino' to use it all the same."
    )


def unavailable_reason() -> str | None:
    """Return the reason why OpenVINO cannot run here, and what to do; None if it can."""
    install = install_command("openvino")
    try:
        version = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return f"OpenVINO is not installed. Install it with: {install}"
    if _release(version) != VERSION:
        wanted = ".".join(map(str, VERSION))
        return f"OpenVINO {version} is not {wanted}, the release that works here. Run: {install}"
    return _import_error()


@cache
def _import_error() -> str | None:
    """Return why the library cannot be opened, for example on musl or an old glibc."""
    spec = importlib.util.find_spec(DISTRIBUTION)
    if spec is None or not spec.submodule_search_locations:
        return f"the installation of OpenVINO is broken. Run: {install_command('openvino')}"
    from core_openvino.library import load_library

    try:
        load_library()
    except (ImportError, OSError) as error:
        return (
            f"OpenVINO's library cannot be opened ({error}). It needs Linux with glibc 2.28, "
            "macOS or Windows; on other systems use the backend llama_cpp."
        )
    return None


def _processor() -> str:
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
