"""The folder for the code that a worker's MLX compiles, writable only by the user.

MLX compiles fused kernels with the system's compiler, and loads existing files of known names in
``mlx/VERSION`` below the temporary folder. Below ``/tmp``, the user who creates that folder first
has code run by all other users (mlx/backend/cpu/jit_compiler.h).
"""

from __future__ import annotations

import os
import platform
import sys

from core.system.outputs import cache_root, private_folder


def compiling_environment() -> dict[str, str]:
    """Return the variables that keep a worker's compiled code private.

    ``TMPDIR`` is a folder for this kind of machine below the user's cache, where the kernels are
    preserved: each takes seconds to compile. Without such a folder, or if code in it may not be
    executed, MLX compiles nothing.
    """
    kind = f"{sys.platform}-{platform.machine()}"
    try:
        folder = private_folder(cache_root() / "kernels" / kind)
        runs = not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)
    except OSError:
        runs = False
    return {"TMPDIR": str(folder)} if runs else {"MLX_DISABLE_COMPILE": "1"}
