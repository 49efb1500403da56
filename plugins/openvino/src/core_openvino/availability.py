"""Availability of OpenVINO, and its device, without importing it."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
from functools import cache
from pathlib import Path

from core.plugins import install_command, release
from core.types import Device
from core_runtime.machine import physical_bytes
from core_runtime.processor import (
    bfloat16_instructions,
    cpu_flags,
    int8_instructions,
    processor_name,
)

DISTRIBUTION = "openvino"
VERSION = (2026, 4)
"""The release whose paged attention has the inputs that `graph` gives it; later ones may not."""


def cpu_device() -> Device:
    """Return this machine's processor, with the instructions that OpenVINO uses on it."""
    flags = cpu_flags()
    used = dict.fromkeys((*bfloat16_instructions(flags), *int8_instructions(flags)))
    return Device(processor_name(), "cpu", physical_bytes() or 0, ", ".join(used) or "float32 only")


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
    if release(version, 2) != VERSION:
        wanted = ".".join(map(str, VERSION))
        return f"OpenVINO {version} is not {wanted}, the release that works here. Run: {install}"
    return _import_error()


@cache
def _import_error() -> str | None:
    """Return why the library cannot be opened, for example on musl or an old glibc.

    It is opened without its Python package, whose import takes a third of a second.
    """
    spec = importlib.util.find_spec(DISTRIBUTION)
    places = (spec and spec.submodule_search_locations) or ()
    files = [file for place in places for file in Path(place, "libs").glob("*openvino.*")]
    if not files:
        return f"the installation of OpenVINO is broken. Run: {install_command('openvino')}"
    try:
        ctypes.CDLL(str(files[0]))
    except OSError as error:
        return (
            f"OpenVINO's library cannot be opened ({error}). It needs Linux with glibc 2.28, "
            "macOS or Windows; on other systems use the backend llama_cpp."
        )
    return None
