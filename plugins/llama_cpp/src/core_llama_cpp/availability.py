"""Whether llama.cpp can run here, and on what: decided without importing llama_cpp."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

from core_llama_cpp import ggml
from core_llama_cpp.ggml import GgmlDevice

MINIMUM = (0, 3, 35)  # before it, the C structures have no n_outputs_max
DISTRIBUTION = "llama-cpp-python"
ROCM = "ROCm"  # ggml's name for its HIP part

_INSTALL = "pip install --upgrade 'core[llama-cpp]' (it is compiled: g++ or clang is needed)"
_REBUILD = f"pip install --force-reinstall --no-deps --no-cache-dir {DISTRIBUTION}"
ROCM_BUILD = f"CMAKE_ARGS='-DGGML_HIP=on' {_REBUILD}"


def library_reason() -> str | None:
    """Why llama.cpp cannot be used; None when it can. Opens its shared library."""
    try:
        version = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return f"{DISTRIBUTION} is not installed: {_INSTALL}"
    if _release(version) < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        return f"{DISTRIBUTION} {version} is too old, {wanted} is needed: {_INSTALL}"
    return _opening_reason(version)


def rocm_reason(devices: Sequence[GgmlDevice]) -> str | None:
    """Why ggml cannot use an AMD GPU, from the devices it reports; None when it can."""
    if rocm_devices(devices):
        return None
    found = ", ".join(f"{device.name} ({device.description})" for device in devices) or "none"
    return (
        f"ggml reports no ROCm device; the devices of this build are: {found}. With ROCm and its "
        f"compiler installed, build for it: {ROCM_BUILD}"
    )


def rocm_devices(devices: Sequence[GgmlDevice]) -> list[GgmlDevice]:
    """Those that ggml's HIP part offers."""
    return [device for device in devices if device.backend == ROCM and device.is_gpu]


def _opening_reason(version: str) -> str | None:
    path = ggml.library_path()
    if path is None or not path.is_file():
        where = f"{path} is missing" if path else "its package is missing"
        return f"the installation of {DISTRIBUTION} {version} is broken, {where}: {_REBUILD}"
    try:
        ggml.open_library(path)
    except (OSError, AttributeError) as error:
        return (
            f"llama.cpp's shared library cannot be opened ({error}). Install what it names, "
            f"or build it again: {_REBUILD}"
        )
    return None


def _release(version: str) -> tuple[int, ...]:
    parts = version.split("+")[0].split(".")[:3]
    return tuple(int(part) for part in parts if part.isdigit())
