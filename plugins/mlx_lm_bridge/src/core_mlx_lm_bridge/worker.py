"""The worker: ``python -m core_mlx_lm_bridge.worker``, or this file run by its path.

Its arguments are the descriptors that it reads requests from and writes answers to; without
arguments, stdin and stdout.

Run by its path it needs msgspec and mlx-lm in its interpreter, Python 3.10 or newer, but neither
`core` nor this distribution: it imports the package from its folder.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

PACKAGE = "core_mlx_lm_bridge"


def main() -> int:
    """Serve requests until they end."""
    requests, answers = _descriptors(sys.argv[1:])
    _stand_somewhere()
    if PACKAGE not in sys.modules:
        _make_package_known(Path(__file__).resolve().parent)
    try:
        from core_mlx_lm_bridge.child.engine import MlxLmEngine
        from core_mlx_lm_bridge.child.service import serve
    except ModuleNotFoundError as error:
        if error.name != "msgspec":
            raise
        _say_what_is_missing("msgspec", answers)
        return 1
    serve(MlxLmEngine(), requests, answers)
    return 0


def _descriptors(arguments: list[str]) -> tuple[int, int]:
    requests, answers = map(int, arguments) if arguments else (0, 1)
    try:
        os.fstat(requests)
        os.fstat(answers)
    except OSError:
        sys.exit(
            f"The worker's descriptors {requests} and {answers} are closed: it was started by a "
            "program that does not pass them on. Set the interpreter itself, or a script that "
            'ends with: exec python "$@"'
        )
    return requests, answers


def _stand_somewhere() -> None:
    """Leave a deleted working directory: importing transformers reads it."""
    try:
        os.getcwd()
    except OSError:
        os.chdir("/")


def _make_package_known(folder: Path) -> None:
    """Make the package importable, like an installed one, but not the other files in its folder."""
    if sys.path and Path(sys.path[0]).resolve() == folder:
        del sys.path[0]  # our modules have plain names, which may be those of other packages
    spec = importlib.util.spec_from_file_location(
        PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[PACKAGE] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


def _say_what_is_missing(name: str, answers: int) -> None:
    """Write an error of the protocol without msgspec, which is missing."""
    install = f"{sys.executable} -m pip install {name}"
    message = f"{name} is not installed for the worker's interpreter. Install it with: {install}"
    answer = {"type": "error", "error": "BackendUnavailableError", "message": message}
    os.write(answers, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
