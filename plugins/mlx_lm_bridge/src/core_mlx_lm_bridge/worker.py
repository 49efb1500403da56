"""The worker: ``python -m core_mlx_lm_bridge.worker``, or this file run by its path.

Run by its path it needs msgspec and mlx-lm in its interpreter, Python 3.10 or newer, and neither
`core` nor this distribution: it makes the package known from the folder that it lies in.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

PACKAGE = "core_mlx_lm_bridge"


def main() -> int:
    """Serve requests until stdin ends."""
    _stand_somewhere()
    if PACKAGE not in sys.modules:
        _make_package_known(Path(__file__).resolve().parent)
    try:
        from core_mlx_lm_bridge.child.engine import MlxLmEngine
        from core_mlx_lm_bridge.child.service import serve
    except ModuleNotFoundError as error:
        if error.name != "msgspec":
            raise
        _say_what_is_missing("msgspec")
        return 1
    serve(MlxLmEngine())
    return 0


def _stand_somewhere() -> None:
    """Leave a working directory that was deleted: transformers asks for it when it is imported."""
    try:
        os.getcwd()
    except OSError:
        os.chdir("/")


def _make_package_known(folder: Path) -> None:
    """Make the package importable, as an install would, but not what else lies beside it."""
    if sys.path and Path(sys.path[0]).resolve() == folder:
        del sys.path[0]  # our modules have plain names, which may be those of other packages
    spec = importlib.util.spec_from_file_location(
        PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[PACKAGE] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


def _say_what_is_missing(name: str) -> None:
    """Write an error of the protocol by hand, as msgspec, which would write it, is missing."""
    install = f"{sys.executable} -m pip install {name}"
    message = f"{name} is not installed for the worker's interpreter. Install it: {install}"
    answer = {"type": "error", "error": "BackendUnavailableError", "message": message}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
