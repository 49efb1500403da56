"""Devices of ggml, the library of llama.cpp, listed without importing llama_cpp.

The shared library is opened by its path in the installed package, as llama_cpp itself does later:
the same file, so the process loads it once.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path


class DeviceType(IntEnum):
    """``ggml_backend_dev_type``; ACCEL works together with the CPU (BLAS, AMX)."""

    CPU = 0
    GPU = 1
    IGPU = 2
    ACCEL = 3
    META = 4

    @classmethod
    def _missing_(cls, value: object) -> DeviceType:
        return cls.META  # a newer kind, which is not used


@dataclass(frozen=True, slots=True)
class GgmlDevice:
    """A device as ggml reports it. Memory is in bytes, 0 if unknown.

    ``backend``: its backend in ggml: CPU, BLAS, CUDA, ROCm, Vulkan, Metal.
    """

    backend: str
    name: str
    description: str
    type: DeviceType
    memory_free: int = 0
    memory_total: int = 0

    @property
    def is_gpu(self) -> bool:
        """True for a device that can hold layers of a model."""
        return self.type in (DeviceType.GPU, DeviceType.IGPU)


def library_path() -> Path | None:
    """Return the path of the installed llama_cpp's shared library.

    None if it is not installed.
    """
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return None
    override = os.environ.get("LLAMA_CPP_LIB_PATH")  # llama_cpp's own
    folder = Path(override) if override else Path(spec.origin).parent / "lib"
    return folder / ("libllama.dylib" if sys.platform == "darwin" else "libllama.so")


@functools.cache
def open_library(path: Path) -> ctypes.CDLL:
    """Return the library with its dependencies, ggml included. Raises OSError."""
    library = ctypes.CDLL(str(path))
    for name in ("dev_name", "dev_description"):
        _declare(library, f"ggml_backend_{name}", ctypes.c_char_p, [ctypes.c_void_p])
    sizes = [ctypes.c_void_p, *[ctypes.POINTER(ctypes.c_size_t)] * 2]
    _declare(library, "ggml_backend_dev_memory", None, sizes)
    _declare(library, "ggml_backend_dev_type", ctypes.c_int, [ctypes.c_void_p])
    _declare(library, "ggml_backend_dev_backend_reg", ctypes.c_void_p, [ctypes.c_void_p])
    _declare(library, "ggml_backend_reg_name", ctypes.c_char_p, [ctypes.c_void_p])
    _declare(library, "ggml_backend_dev_count", ctypes.c_size_t, [])
    _declare(library, "ggml_backend_dev_get", ctypes.c_void_p, [ctypes.c_size_t])
    return library


def devices() -> Sequence[GgmlDevice]:
    """Return the devices, in ggml's order; none without the library.

    Raises OSError if it is broken.
    """
    path = library_path()
    if path is None:
        return ()
    library = open_library(path)
    count = library.ggml_backend_dev_count()
    return tuple(_device(library, library.ggml_backend_dev_get(i)) for i in range(count))


def _device(library: ctypes.CDLL, handle: int) -> GgmlDevice:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    library.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    registry = library.ggml_backend_dev_backend_reg(handle)
    return GgmlDevice(
        backend=_text(library.ggml_backend_reg_name(registry)),
        name=_text(library.ggml_backend_dev_name(handle)),
        description=_text(library.ggml_backend_dev_description(handle)),
        type=DeviceType(library.ggml_backend_dev_type(handle)),
        memory_free=free.value,
        memory_total=total.value,
    )


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace").strip()


def _declare(library: ctypes.CDLL, name: str, result: object, arguments: list[object]) -> None:
    function = getattr(library, name)  # AttributeError: older than `availability` accepts
    function.restype, function.argtypes = result, arguments
