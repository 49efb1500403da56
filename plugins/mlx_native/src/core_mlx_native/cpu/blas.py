"""A real BLAS in front of the one that MLX's Linux CPU build brings along.

MLX's Linux wheel is linked with netlib's reference BLAS, 20 to 90 times slower than OpenBLAS.
Its matrix products are three functions (``cblas_sgemm``, ``cblas_dgemm``, ``cblas_cgemm``), and a
library in the global scope that defines them is used instead, when it is there before
``mlx.core`` is imported. The environment variable ``CORE_MLX_BLAS`` chooses:

- ``auto`` (default): scipy-openblas32, else MKL, else the system's OpenBLAS;
- ``bundled``: leave MLX as it is;
- an absolute path: that library, which defines ``cblas_sgemm`` (or ``scipy_cblas_sgemm``).

``OPENBLAS_NUM_THREADS`` and ``MKL_NUM_THREADS`` are read by those libraries themselves.

OpenBLAS's threads spin for 2**26 cycles behind each product, on the cores that `numpy_ops` works on
meanwhile. 2**14 spare a classification 5 % of its time and 14 % of the processor's; decoding is the
same. A value that the environment has already (``OPENBLAS_THREAD_TIMEOUT``) stays.
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

    ``active`` is true when a library other than MLX's own is in front of it; ``name`` and
    ``path`` then are that library's.
    """

    name: str
    path: str
    active: bool
    reason: str


_lock = threading.Lock()
_decision: BlasReport | None = None
_kept: list[ctypes.CDLL] = []  # a handle that is let go of may be unloaded


def ensure_blas() -> BlasReport:
    """Put a real BLAS in front of MLX; call it before the first ``import mlx.core``.

    The first call decides for the life of the process, later ones return its report. Never
    raises: what cannot be used is named in ``reason``, and MLX's own BLAS stays.
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
    """The report where nothing is left to choose: another platform, another's BLAS, too late."""
    if sys.platform != "linux":
        name = "Accelerate" if sys.platform == "darwin" else "MLX's bundled BLAS"
        reason = "MLX brings a fast BLAS on this platform"
        return BlasReport(name, "", active=False, reason=reason)

    # The program has put a library of its own in front.
    if binds_before_mlx(owner := global_owner(SYMBOL)):
        reason = "it was in this process before MLX (LD_PRELOAD, or loaded by the program)"
        return BlasReport(describe(ctypes.CDLL(owner)), owner, active=True, reason=reason)

    if _setting() == "bundled":
        return _bundled(f"{ENVIRONMENT}=bundled asks for it")

    # Symbols that are bound already stay bound.
    if "mlx.core" in sys.modules:
        return _bundled(
            f"{_SLOW}: mlx.core was imported before a faster one could be put in front of it. "
            "Load the model with core.load_model, or import core_mlx_native and call "
            "core_mlx_native.cpu.blas.ensure_blas(), before the program imports mlx"
        )

    return None


def binds_before_mlx(library: str) -> bool:
    """True if ``library`` answers MLX's open symbols: it is loaded, and was so before MLX.

    MLX's own are bound when it is loaded, so that a library that comes later has no effect.
    """
    order = load_order()
    if library not in order:
        return False
    mlx = next((i for i, path in enumerate(order) if os.path.basename(path) == "libmlx.so"), None)
    return mlx is None or order.index(library) < mlx


def _chosen() -> tuple[list[Library], str]:
    """The libraries to try, and what is wrong with the setting itself."""
    setting = _setting()
    if setting == "auto":
        return candidates(), ""
    if not os.path.isabs(setting):
        return [], f"{ENVIRONMENT}={setting!r} is not auto, bundled or an absolute path"
    if not os.path.isfile(setting):
        return [], f"{ENVIRONMENT}={setting} is not there"
    return [Library(setting)], ""


def _plan() -> BlasReport:
    if decided := _decided_already():
        return decided
    libraries, problem = _chosen()
    if not libraries:
        return _none_found([problem] if problem else [])
    first = libraries[0]
    reason = "it is put in front of MLX's own when the first model is loaded"
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
    found = "; ".join(problems) or "no OpenBLAS or MKL was found"
    return _bundled(f"{found}: {_SLOW}. {_GET_ONE}")


def _put_in_front(library: Library, problems: list[str]) -> BlasReport:
    """Load ``library`` into the global scope. Raises OSError when it is no BLAS for MLX."""
    os.environ.setdefault(*_SPIN)  # read when the library is loaded
    handle = ctypes.CDLL(library.path)  # not global yet: that could not be taken back
    prefix = _prefix(handle)

    # Nothing is in front of MLX yet: a library that is wrong can still be refused.
    if not multiplies_right(getattr(handle, prefix + SYMBOL)):
        raise OSError(f"its {SYMBOL} computes a wrong product")

    # The shim gives the plain names to a library whose names have a prefix.
    paths = [library.path, shim_path()] if prefix else [library.path]
    name = describe(handle, library.package)
    _kept.extend(open_globally(path) for path in paths)
    if not binds_before_mlx(global_owner(SYMBOL)):
        raise OSError(f"its {SYMBOL} did not become visible")

    why = "many times faster than MLX's bundled reference BLAS"
    reason = "; ".join([*problems, f"{why} ({ENVIRONMENT}={_setting()})"])
    return BlasReport(name, library.path, active=True, reason=reason)


def _prefix(handle: ctypes.CDLL) -> str:
    """The prefix of the library's CBLAS names. Raises OSError when it has no CBLAS."""
    for prefix in ("", "scipy_"):
        if has_symbol(handle, prefix + SYMBOL):
            return prefix
    raise OSError(f"it does not define {SYMBOL}")
