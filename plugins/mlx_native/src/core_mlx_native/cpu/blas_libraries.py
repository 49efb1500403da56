"""Locations of BLAS libraries on Linux, and descriptions of loaded ones."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core_mlx_native.cpu.linker import has_symbol

_SYSTEM_DIRECTORIES = (
    "/usr/local/lib",
    f"/usr/lib/{platform.machine()}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
)


@dataclass(frozen=True, slots=True)
class Library:
    """A file to load; ``package`` names the Python package that it came with, if any."""

    path: str
    package: str = ""


def candidates() -> list[Library]:
    """Return the installed libraries, best first. Checks file names and loads nothing."""
    libraries = [
        *_scipy_openblas(),
        *(Library(path, "mkl") for path in _in_directories("libmkl_rt.so*")),
        *(Library(path) for path in _in_directories("libopenblas.so.0")),
    ]
    return list(dict.fromkeys(libraries))


def shim_path() -> str:
    """Return the shim for this machine. Raises OSError for other architectures."""
    machine = platform.machine()
    path = Path(__file__).parent / "shim" / machine / "libcore_cblas_shim.so"
    if not path.is_file():
        raise OSError(f"it needs a shim, which was not built for {machine}")
    return str(path)


def multiplies_right(sgemm: Callable[..., object]) -> bool:
    """Return True if ``cblas_sgemm`` computes ``2 A B^T + C`` of small integers exactly.

    A library with another integer size, or a faulty kernel for this processor, would silently give
    wrong results.
    """
    row_major, as_is, transposed = 101, 111, 112  # CBLAS_ORDER and CBLAS_TRANSPOSE
    rows, columns, inner = 2, 2, 3

    # C is all ones, and receives the result.
    a = (ctypes.c_float * 6)(1, 2, 3, 4, 5, 6)
    b = (ctypes.c_float * 6)(1, 0, 1, 0, 1, 1)
    c = (ctypes.c_float * 4)(1, 1, 1, 1)

    two, one = ctypes.c_float(2), ctypes.c_float(1)
    sizes = (row_major, as_is, transposed, rows, columns, inner)
    sgemm(*sizes, two, a, inner, b, inner, one, c, columns)
    return list(c) == [9.0, 11.0, 21.0, 23.0]


def describe(handle: ctypes.CDLL, package: str = "") -> str:
    """Describe a loaded BLAS: "OpenBLAS 0.3.34 (scipy-openblas32, SkylakeX, 2 threads)"."""
    if name := _describe_openblas(handle, package):
        return name
    if has_symbol(handle, "MKL_Get_Version_String"):
        return _describe_mkl(handle)
    return package or "BLAS"


def _scipy_openblas() -> list[Library]:
    # Not imported: the import would already load the library.
    for entry in sys.path:
        path = Path(entry, "scipy_openblas32", "lib", "libscipy_openblas.so")
        if path.is_file():
            return [Library(str(path), "scipy-openblas32")]
    return []


def _in_directories(pattern: str) -> list[str]:
    directories = [
        f"{sys.prefix}/lib",
        *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")),
        *_SYSTEM_DIRECTORIES,
    ]
    return [
        str(path) for directory in directories for path in sorted(Path(directory).glob(pattern))
    ]


def _describe_openblas(handle: ctypes.CDLL, package: str) -> str:
    for prefix in ("scipy_openblas", "openblas"):
        if has_symbol(handle, f"{prefix}_get_config"):
            words = _text(handle, f"{prefix}_get_config").split()  # "OpenBLAS 0.3.34 DYNAMIC_…"
            threads = getattr(handle, f"{prefix}_get_num_threads")()
            count = f"{threads} thread{'s' if threads != 1 else ''}"
            details = (package, _text(handle, f"{prefix}_get_corename"), count)
            return f"{' '.join(words[:2])} ({', '.join(filter(None, details))})"
    return ""


def _describe_mkl(handle: ctypes.CDLL) -> str:
    text = ctypes.create_string_buffer(256)
    handle.MKL_Get_Version_String(text, len(text))
    return text.value.decode(errors="replace").split(" Build ")[0].strip()


def _text(handle: ctypes.CDLL, function: str) -> str:
    call = getattr(handle, function)
    call.restype = ctypes.c_char_p
    return (call() or b"").decode(errors="replace")
