"""The processor's name, and its instructions for products of narrow numbers, from Linux."""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
_BFLOAT16 = {"avx512_bf16": "AVX512_BF16", "amx_bf16": "AMX", "bf16": "ARM BF16"}
_INT8 = {
    "avx512_vnni": "AVX512_VNNI",
    "avx_vnni": "AVX_VNNI",
    "amx_int8": "AMX",
    "i8mm": "ARM I8MM",
}
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES = 158, 0x1023, 18  # of Linux on x86-64


def processor_name(cpuinfo: Path = CPUINFO) -> str:
    """Return the processor's name for itself, else that of its kind, for example aarch64."""
    return _first(cpuinfo, "model name") or platform.processor() or platform.machine()


@cache
def cpu_flags() -> frozenset[str]:
    """Return the instruction sets that this process may use; empty where Linux does not say."""
    flags = reported_flags()
    tiles = {flag for flag in flags if flag.startswith("amx_")}
    return flags - tiles if tiles and not _may_use_tiles() else flags


def reported_flags(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Return the processor's instruction sets, by Linux's names."""
    return frozenset(_first(cpuinfo, "flags", "Features").split())


def _may_use_tiles() -> bool:
    """Ask Linux for AMX's registers, as libraries do before they use them; a sandbox may refuse."""
    request = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILES)
    return bool(request == 0)


def bfloat16_instructions(flags: frozenset[str]) -> tuple[str, ...]:
    """Return the names of the processor's instructions for bfloat16 products."""
    return tuple(name for flag, name in _BFLOAT16.items() if flag in flags)


def fast_bfloat16_instructions(flags: frozenset[str]) -> tuple[str, ...]:
    """Return those with which bfloat16 products are faster than float32's; empty if none are.

    On a Xeon whose AMX may not be used, AVX512_BF16 is slower: SmolLM2 classified in 69 ms a row,
    in float32 in 46. AVX512_FP16 tells such a Xeon from older ones and from AMD's processors.
    """
    is_slow = "avx512_fp16" in flags and "amx_bf16" not in flags
    return () if is_slow else bfloat16_instructions(flags)


def int8_instructions(flags: frozenset[str]) -> tuple[str, ...]:
    """Return the names of the processor's instructions for products of 8-bit integers."""
    return tuple(name for flag, name in _INT8.items() if flag in flags)


def _first(cpuinfo: Path, *keys: str) -> str:
    """Return the first value under one of these keys; empty without one."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(keys)), "")
