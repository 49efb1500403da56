"""The tool that builds llama-cpp-python's wheel once: what it asks for, keeps, and says."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
TOOL = ROOT / "tools" / "llama_cpp_wheel.py"

# In place of a compiler and pip: notes how it was called, and leaves a wheel or fails.
PIP = """
import os, pathlib, sys
arguments = sys.argv[1:]
pathlib.Path(os.environ["NOTES"]).open("a").write(
    " ".join(arguments) + "\\n" + os.environ["CMAKE_ARGS"] + "\\n")
if os.environ.get("FAILS"):
    sys.exit("error: no member named 'n_outputs_max'")
folder = pathlib.Path(arguments[arguments.index("-w") + 1])
version = arguments[-1].partition("==")[2]
(folder / f"llama_cpp_python-{version}-py3-none-linux_x86_64.whl").write_bytes(b"wheel")
"""


@pytest.fixture
def stage(tmp_path: Path) -> dict[str, str]:
    """An environment with a compiler by name, a pip that compiles nothing, and an empty cache."""
    for name in ("bin", "modules/pip"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin" / "c++").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "c++").chmod(0o755)
    (tmp_path / "modules" / "pip" / "__init__.py").write_text("")
    (tmp_path / "modules" / "pip" / "__main__.py").write_text(PIP)
    return {
        "PATH": str(tmp_path / "bin"),
        "PYTHONPATH": str(tmp_path / "modules"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "NOTES": str(tmp_path / "notes"),
        "HOME": str(tmp_path),
    }


def _run(stage: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), *arguments]
    return subprocess.run(command, env=dict(stage), capture_output=True, text=True)


def _notes(stage: Mapping[str, str]) -> list[str]:
    path = Path(stage["NOTES"])
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("llama_cpp_wheel", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_builds_once_and_prints_the_folder(stage: dict[str, str], tool: ModuleType) -> None:
    first, second = _run(stage), _run(stage)
    assert first.returncode == second.returncode == 0
    assert first.stdout == second.stdout
    folder = Path(first.stdout.strip())
    assert folder.is_relative_to(Path(stage["XDG_CACHE_HOME"]) / "core" / "wheels")
    version = tool.pinned_version()
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith(f"llama_cpp_python-{version}-")
    called, cmake = _notes(stage)  # once
    assert called.startswith("wheel ")
    assert called.endswith(f" llama-cpp-python=={version}")
    assert "-DGGML_BLAS" not in cmake
    assert "once" in first.stderr
    assert second.stderr == ""


def test_a_wheel_of_another_version_does_not_count(stage: dict[str, str]) -> None:
    folder = Path(_run(stage).stdout.strip())
    (wheel,) = folder.glob("*.whl")
    wheel.rename(folder / "llama_cpp_python-0.1.0-py3-none-linux_x86_64.whl")
    assert _run(stage).returncode == 0
    assert len(_notes(stage)) == 4


@pytest.mark.parametrize("how", ["changed", "no record", "another's name"])
def test_a_wheel_that_is_not_as_it_was_built_is_built_again(
    stage: dict[str, str], how: str
) -> None:
    folder = Path(_run(stage).stdout.strip())
    (wheel,) = folder.glob("*.whl")
    planted = wheel
    if how == "changed":
        wheel.write_bytes(b"planted")
    elif how == "no record":
        wheel.with_name(f"{wheel.name}.sha256").unlink()
    else:  # pip would take it for its build number
        planted = folder / wheel.name.replace("-py3", "-1-py3")
        planted.write_bytes(b"planted")
    done = _run(stage)
    assert done.returncode == 0
    assert f"{planted} is not as it was built" in done.stderr
    assert [each.read_bytes() for each in folder.glob("*.whl")] == [b"wheel"]
    assert len(_notes(stage)) == (2 if planted != wheel else 4)
    assert _run(stage).stderr == ""


def test_a_wheel_from_before_there_were_records_is_kept(stage: dict[str, str]) -> None:
    folder = Path(_run(stage).stdout.strip())
    (wheel,) = folder.glob("*.whl")
    for path in (folder / ".recorded", wheel.with_name(f"{wheel.name}.sha256")):
        path.unlink()
    folder.chmod(0o755)
    assert _run(stage).stderr == ""
    assert len(_notes(stage)) == 2
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / ".recorded").unlink()
    wheel.with_name(f"{wheel.name}.sha256").unlink()
    wheel.chmod(0o666)
    assert "is built again" in _run(stage).stderr


def test_a_folder_that_others_may_write_to_is_refused(stage: dict[str, str]) -> None:
    folder = Path(_run(stage).stdout.strip())
    folder.chmod(0o777)
    done = _run(stage)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"Other users may write to {folder}" in done.stderr
    assert "chmod go-w" in done.stderr


def test_without_a_compiler_it_says_what_is_missing(stage: dict[str, str]) -> None:
    (Path(stage["PATH"]) / "c++").unlink()
    done = _run(stage)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "no C++ compiler: none of c++, g++, clang++" in done.stderr
    assert "apt install g++" in done.stderr
    assert _notes(stage) == []


def test_a_compiler_that_cxx_names_is_the_one(stage: dict[str, str]) -> None:
    done = _run({**stage, "CXX": "icpx -O3"})
    assert done.returncode == 1
    assert "CXX names 'icpx'" in done.stderr
    assert _run({**stage, "CXX": "c++ -O3"}).returncode == 0


def test_a_wheel_that_is_there_needs_no_compiler(stage: dict[str, str]) -> None:
    assert _run(stage).returncode == 0
    (Path(stage["PATH"]) / "c++").unlink()
    assert _run(stage).returncode == 0


def test_a_failed_build_shows_the_compilers_words_and_leaves_nothing(
    stage: dict[str, str],
) -> None:
    done = _run({**stage, "FAILS": "1"})
    assert done.returncode == 1
    assert "no member named 'n_outputs_max'" in done.stderr
    (folder,) = (Path(stage["XDG_CACHE_HOME"]) / "core" / "wheels").iterdir()
    assert sorted(os.listdir(folder)) == [".lock", ".recorded"]


def test_the_openblas_build_has_a_folder_of_its_own(stage: dict[str, str]) -> None:
    plain, blas = _run(stage), _run(stage, "--openblas")
    assert blas.stdout.strip() == f"{plain.stdout.strip()}-openblas"
    cmake = _notes(stage)[3]
    assert "-DGGML_BLAS=ON -DGGML_BLAS_VENDOR=OpenBLAS" in cmake
    assert "-Dcblas_sgemm=scipy_cblas_sgemm" in cmake
    library = cmake.partition("-DBLAS_LIBRARIES=")[2].split()[0]
    assert Path(library).is_file()


def test_arguments_of_the_caller_come_last(stage: dict[str, str]) -> None:
    assert _run({**stage, "CMAKE_ARGS": "-DGGML_NATIVE=OFF"}).returncode == 0
    assert _notes(stage)[1].endswith(" -DGGML_NATIVE=OFF")


def test_the_cmake_file_that_it_names_is_there(tool: ModuleType) -> None:
    (included,) = (
        argument.partition("=")[2]
        for argument in tool.cmake_arguments(openblas=False)
        if argument.startswith("-DCMAKE_PROJECT_INCLUDE_BEFORE=")
    )
    assert "set(LLAMA_BUILD_COMMON OFF)" in Path(included).read_text()


def test_another_processor_gets_another_folder(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def machine(flags: str) -> str:
        monkeypatch.setattr(Path, "read_text", lambda _: f"processor : 0\nflags\t: {flags}\n")
        return str(tool._machine())

    assert machine("avx avx2") == machine("avx2 avx")  # the order says nothing
    assert machine("avx avx2") != machine("avx avx2 avx512f")
