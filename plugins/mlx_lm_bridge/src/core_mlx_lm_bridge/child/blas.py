"""An optimised BLAS in place of the reference BLAS in MLX's Linux CPU build.

MLX's unresolved ``cblas_sgemm`` binds to a library that is in the global scope before
``mlx.core`` is imported. A library from ``LD_PRELOAD`` is kept; else one of the system's is
opened. The environment variable ``CORE_MLX_BLAS`` selects it, as for the MLX backends: ``auto``
(the default), ``bundled``, or the absolute path of a library.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys

_SYMBOL = "cblas_sgemm"
_SYSTEM = ("openblas", "mkl_rt")


def ensure_blas() -> str:
    """Return the library used in place of MLX's BLAS; empty without one. Does not raise.

    Call it before the first import of MLX. Unusable libraries are reported on stderr.
    """
    if sys.platform != "linux":
        return ""
    if hasattr(ctypes.CDLL(None), _SYMBOL):
        return os.environ.get("LD_PRELOAD", "") or "already in the process"
    return next(filter(_put_in_front, _candidates()), "")


def _put_in_front(library: str) -> bool:
    try:
        if hasattr(ctypes.CDLL(library), _SYMBOL):
            ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
            return True
        reason = f"it does not define {_SYMBOL}"
    except OSError as error:
        reason = str(error)
    sys.stderr.write(f"{library} cannot be used as BLAS for MLX: {reason}\n")
    return False


def _candidates() -> list[str]:
    setting = os.environ.get("CORE_MLX_BLAS", "").strip() or "auto"
    if setting != "auto":
        return [setting] if os.path.isabs(setting) else []
    libraries = map(ctypes.util.find_library, _SYSTEM)
    return [library for library in libraries if library]
