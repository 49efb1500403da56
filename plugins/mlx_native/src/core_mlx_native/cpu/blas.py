"""A fast BLAS that replaces the one bundled with MLX's Linux CPU build.

MLX's Linux wheel is linked with netlib's reference BLAS, 20 to 90 times slower than OpenBLAS. Its
matrix products are three functions (``cblas_sgemm``, ``cblas_dgemm``, ``cblas_cgemm``), and a
library in the global scope that defines them is used instead, if it was loaded before ``mlx.core``.
The environment variable ``CORE_MLX_BLAS`` selects it:

- ``auto`` (default): scipy-openblas32, else MKL, else the system's OpenBLAS;
- ``bundled``: leave MLX as it is;
- an absolute path: that library, which defines ``cblas_sgemm`` (or ``scipy_cblas_sgemm``).

``OPENBLAS_NUM_THREADS`` and ``MKL_NUM_THREADS`` are read by those libraries themselves.

OpenBLAS's threads spin for 2**26 cycles after each product, on the cores that `numpy_ops` then
uses. With 2**14, a classification takes 5% less time and 14% less processor time; decoding is
unchanged. A value already in the environment (``OPENBLAS_THREAD_TIMEOUT``) is kept.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from dataclasses import dataclass

from core_mlx_native.cpu.blas_libraries import (
    Library,
    candidates,
    describe,
    multiplies_right,
    shim_path,
)
from core_mlx_native.cpu.linker import global_owner, has_symbol, load_order, open_globally

ENVIRONMENT = "CORE_MLX_BLAS"
SYMBOL = "cblas_sgemm"
_SPIN = ("OPENBLAS_THREAD_TIMEOUT", "14")
_SLOW = "MLX's bundled reference BLAS is used, which is many times slower"
_GET_ONE = "To get a fast one: pip install scipy-openblas32"


@dataclass(frozen=True, slots=True)
class BlasReport:
    """The BLAS that computes MLX's matrix products on the CPU, and the reason for it.

    ``active`` is true if a library other than MLX's own is used; ``name`` and ``path`` are then
    that library's.
    """

    name: str
    path: str
    active: bool
    reason: str


_lock = threading.Lock()
_decision: BlasReport | None = None
_loaded: list[ctypes.CDLL] = []  # a library without a handle may be unloaded


def ensure_blas() -> BlasReport:
    """Load a fast BLAS for MLX; call this before the first ``import mlx.core``.

    The first call decides for the lifetime of the process, later ones return its report. Never
    raises: unusable libraries are named in ``reason``, and MLX's own BLAS stays in use.
    """
    global _decision
    with _lock:
        if _decision is None:
            _decision = _decide()
        return _decision


def blas_report() -> BlasReport:
    """Report what :func:`ensure_blas` did or, before its call, would do. Loads nothing."""
    with _lock:
        return _decision or _plan()


def _setting() -> str:
    return os.environ.get(ENVIRONMENT, "").strip() or "auto"


def _bundled(reason: str) -> BlasReport:
    return BlasReport("MLX's bundled BLAS", "", active=False, reason=reason)


def _decided_already() -> BlasReport | None:
    """Return the report if nothing is left to choose, else None.

    The cases: another platform, a BLAS loaded by the program, or a call after MLX's import.
    """
    if sys.platform != "linux":
        name = "Accelerate" if sys.platform == "darwin" else "MLX's bundled BLAS"
        reason = "MLX comes with a fast BLAS on this platform"
        return BlasReport(name, "", active=False, reason=reason)

    # The program has loaded its own BLAS.
    if binds_before_mlx(owner := global_owner(SYMBOL)):
        reason = "it was loaded before MLX (LD_PRELOAD, or by the program)"
        return BlasReport(describe(ctypes.CDLL(owner)), owner, active=True, reason=reason)

    if _setting() == "bundled":
        return _bundled(f"{ENVIRONMENT}=bundled selects it")

    # Bound symbols stay bound.
    if "mlx.core" in sys.modules:
        return _bundled(
            f"{_SLOW}: mlx.core was imported before a faster one could be loaded. Load the model "
            "with core.load_model, or import core_mlx_native and call "
            "core_mlx_native.cpu.blas.ensure_blas(), before the program imports mlx"
        )

    return None


def binds_before_mlx(library: str) -> bool:
    """Return True if ``library`` was loaded before MLX, so that it binds MLX's open symbols.

    MLX's symbols are bound when it is loaded, so a library loaded later has no effect.
    """
    order = load_order()
    if library not in order:
        return False
    mlx = next((i for i, path in enumerate(order) if os.path.basename(path) == "libmlx.so"), None)
    return mlx is None or order.index(library) < mlx


def _chosen() -> tuple[list[Library], str]:
    """Return the libraries to try, and the problem with the setting, empty if none."""
    setting = _setting()
    if setting == "auto":
        return candidates(), ""
    if not os.path.isabs(setting):
        return [], f"{ENVIRONMENT}={setting!r} is neither auto, bundled nor an absolute path"
    if not os.path.isfile(setting):
        return [], f"{ENVIRONMENT}={setting} does not exist"
    return [Library(setting)], ""


def _plan() -> BlasReport:
    if decided := _decided_already():
        return decided
    libraries, problem = _chosen()
    if not libraries:
        return _none_found([problem] if problem else [])
    first = libraries[0]
    reason = "it replaces MLX's own when the first model is loaded"
    return BlasReport(first.package or first.path, first.path, active=False, reason=reason)


def _decide() -> BlasReport:
    if decided := _decided_already():
        return decided
    libraries, problem = _chosen()
    problems = [problem] if problem else []
    for library in libraries:
        try:
            return _put_in_front(library, problems)
        except OSError as error:
            problems.append(f"{library.path} cannot be used ({error})")
    return _none_found(problems)


def _none_found(problems: list[str]) -> BlasReport:
    reasons = "; ".join(problems) or "no OpenBLAS or MKL was found"
    return _bundled(f"{reasons}: {_SLOW}. {_GET_ONE}")


def _put_in_front(library: Library, problems: list[str]) -> BlasReport:
    """Load ``library`` into the global scope. Raises OSError if it does not work for MLX."""
    os.environ.setdefault(*_SPIN)  # read when the library is loaded
    handle = ctypes.CDLL(library.path)  # not global yet: that could not be undone
    prefix = _prefix(handle)

    # The library is not global yet, so a wrong one can still be rejected.
    if not multiplies_right(getattr(handle, prefix + SYMBOL)):
        raise OSError(f"its {SYMBOL} computes a wrong product")

    # The shim defines the plain names for a library with prefixed ones.
    paths = [library.path, shim_path()] if prefix else [library.path]
    name = describe(handle, library.package)
    _loaded.extend(open_globally(path) for path in paths)
    if not binds_before_mlx(global_owner(SYMBOL)):
        raise OSError(f"its {SYMBOL} did not become visible")

    why = "many times faster than MLX's bundled reference BLAS"
    reason = "; ".join([*problems, f"{why} ({ENVIRONMENT}={_setting()})"])
    return BlasReport(name, library.path, active=True, reason=reason)


def _prefix(handle: ctypes.CDLL) -> str:
    """Return the prefix of the library's CBLAS names. Raises OSError without CBLAS."""
    for prefix in ("", "scipy_"):
        if has_symbol(handle, prefix + SYMBOL):
            return prefix
    raise OSError(f"it does not define {SYMBOL}")
