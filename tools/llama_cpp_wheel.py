"""Build llama-cpp-python's wheel once per machine, and print the folder that holds it.

The package index has its source only, and compiling takes minutes, so the wheel is cached in
``$XDG_CACHE_HOME/core/wheels`` (default ``~/.cache/core/wheels``), in a folder for this processor:
llama.cpp is compiled for the one it is built on. Only its owner can write to that folder, and a
file next to the wheel records its SHA-256: a wheel without the right one is built again. Several
processes may run this concurrently.

    pip install --find-links "$(python tools/llama_cpp_wheel.py)" llama-cpp-python
    pip install --force-reinstall --no-deps "$(python tools/llama_cpp_wheel.py --openblas)"/*.whl
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_TOOLS = Path(__file__).resolve().parent
sys.path.append(str(_TOOLS.parent))  # this runs before anything is installed

from core.system.outputs import cache_root, private_folder  # noqa: E402

_CONSTRAINTS = _TOOLS.parent / "constraints.txt"
_COMPILERS = ("c++", "g++", "clang++")
_LIBRARY_ONLY = (
    "-DLLAVA_BUILD=OFF",
    f"-DCMAKE_PROJECT_INCLUDE_BEFORE={_TOOLS / 'llama_cpp_library_only.cmake'}",
)
_NO_COMPILER = (
    "llama-cpp-python is compiled here once, and there is no C++ compiler: {missing}. Install one "
    "(Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select "
    "--install). CMake and ninja come by themselves, from the package index."
)
_NO_OPENBLAS = (
    "--openblas builds with the library of the package scipy-openblas32, which is not installed "
    "in this environment: pip install scipy-openblas32"
)


class CannotBuildError(Exception):
    """Something that a build needs is missing, or the build failed."""


def wheel_folder(openblas: bool = False) -> Path:
    """The folder with the wheel, built when it is not there. Raises `CannotBuildError`."""
    version = pinned_version()
    try:
        wheels = private_folder(cache_root() / "wheels")
        folder = private_folder(wheels / f"{_machine()}{'-openblas' if openblas else ''}")
    except OSError as error:
        raise CannotBuildError(f"No folder to keep llama-cpp-python's wheel in: {error}") from None
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _discard_unknown(folder)
        if not any(folder.glob(f"llama_cpp_python-{version}-*.whl")):
            _build(version, folder, openblas)
    return folder


def _discard_unknown(folder: Path) -> None:
    """Remove what is not as it was built: pip would take the best of what lies there.

    A folder from before there were records gets them: only its owner could write to it.
    """
    marker = folder / ".recorded"
    for wheel in folder.glob("*.whl"):
        if not marker.exists() and _is_ours(wheel):
            _record(wheel)
        elif not _is_recorded(wheel):
            print(f"{wheel} is not as it was built, and is built again.", file=sys.stderr)
            wheel.unlink()
    marker.touch()


def _record(wheel: Path) -> None:
    _record_of(wheel).write_text(f"{_sha256(wheel)}  {wheel.name}\n")


def _is_recorded(wheel: Path) -> bool:
    try:
        return _record_of(wheel).read_text().split() == [_sha256(wheel), wheel.name]
    except (OSError, ValueError):
        return False


def _is_ours(wheel: Path) -> bool:
    status = wheel.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & others
    )


def _record_of(wheel: Path) -> Path:
    return wheel.with_name(f"{wheel.name}.sha256")


def _sha256(wheel: Path) -> str:
    with wheel.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pinned_version() -> str:
    """The version that constraints.txt names."""
    pin = re.search(r"^llama_cpp_python==(\S+)$", _CONSTRAINTS.read_text(), re.MULTILINE)
    if pin is None:
        raise CannotBuildError(f"{_CONSTRAINTS} pins no version of llama_cpp_python.")
    return pin[1]


def cmake_arguments(openblas: bool) -> list[str]:
    """Return CMake's arguments: only llama.cpp's library, with or without a BLAS."""
    if not openblas:
        return list(_LIBRARY_ONLY)
    spec = importlib.util.find_spec("scipy_openblas32")
    if spec is None or spec.origin is None:
        raise CannotBuildError(_NO_OPENBLAS)
    root = Path(spec.origin).parent
    suffix = "dylib" if sys.platform == "darwin" else "so"
    # Its functions carry a prefix, which keeps them apart from another BLAS of the process.
    names = ("cblas_sgemm", "openblas_set_num_threads", "openblas_get_parallel")
    defines = " ".join(f"-D{name}=scipy_{name}" for name in names)
    return [
        *_LIBRARY_ONLY,
        "-DGGML_BLAS=ON",
        "-DGGML_BLAS_VENDOR=OpenBLAS",
        f"-DBLAS_LIBRARIES={root / 'lib' / f'libscipy_openblas.{suffix}'}",
        f"-DBLAS_INCLUDE_DIRS={root / 'include'}",
        f"-DCMAKE_CXX_FLAGS='{defines}'",
    ]


def _build(version: str, folder: Path, openblas: bool) -> None:
    _check_compiler()
    arguments = [*cmake_arguments(openblas), os.environ.get("CMAKE_ARGS", "")]
    environment = {**os.environ, "CMAKE_ARGS": " ".join(arguments).strip()}
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    print(f"Building llama-cpp-python {version}, once: it takes minutes ...", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as partial:
        options = ("--no-deps", "--no-cache-dir", "--no-binary", "llama-cpp-python", "-w", partial)
        _pip("wheel", *options, f"llama-cpp-python=={version}", environment=environment)
        for wheel in Path(partial).glob("*.whl"):
            target = wheel.replace(folder / wheel.name)
            _record(target)


def _pip(*arguments: str, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pip", *arguments]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise CannotBuildError(f"{done.stdout[-6000:]}\nllama-cpp-python was not built; see above.")


def _check_compiler() -> None:
    compiler = os.environ.get("CXX", "").split()[:1]
    if not any(shutil.which(name) for name in compiler or _COMPILERS):
        missing = f"CXX names {compiler[0]!r}" if compiler else f"none of {', '.join(_COMPILERS)}"
        raise CannotBuildError(_NO_COMPILER.format(missing=missing))


def _machine() -> str:
    """A name for this kind of processor: its instruction sets, as Linux lists them."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text()
    except OSError:
        cpuinfo = platform.processor()
    features = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    known = " ".join(sorted(features[1].split())) if features else cpuinfo
    digest = hashlib.sha256(known.encode()).hexdigest()[:8]
    return f"{sys.platform}-{platform.machine()}-{digest}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the folder; return 1, with the reason on stderr, if there is no wheel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--openblas", action="store_true", help="a build with scipy-openblas32")
    try:
        print(wheel_folder(parser.parse_args(arguments).openblas))
    except CannotBuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
