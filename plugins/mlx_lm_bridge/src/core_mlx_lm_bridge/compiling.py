"""The folder for the code that a worker's MLX compiles: nobody else can write to it.

MLX compiles fused kernels with the system's compiler, and loads what lies ready under a known name
in ``mlx/VERSION`` below the temporary folder. Below ``/tmp``, whoever makes that folder first has
his code run by everybody else (mlx/backend/cpu/jit_compiler.h).
"""

from __future__ import annotations

import os
import platform
import sys

from core.system.user_cache import cache_root, private_folder


def compiling_environment() -> dict[str, str]:
    """The variables that keep a worker's compiled code private.

    ``TMPDIR`` is a folder of this kind of machine below the user's cache, where the kernels last,
    seconds of work each. Where none can be had, or none that code may be run from, MLX compiles
    nothing.
    """
    kind = f"{sys.platform}-{platform.machine()}"
    try:
        folder = private_folder(cache_root() / "kernels" / kind)
        runs = not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)
    except OSError:
        runs = False
    return {"TMPDIR": str(folder)} if runs else {"MLX_DISABLE_COMPILE": "1"}
