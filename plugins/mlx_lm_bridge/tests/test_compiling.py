"""The folder of compiled code: nobody else's code is run, and a worker runs without one, too."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import BackendUnavailableError
from core_mlx_lm_bridge import session
from core_mlx_lm_bridge.compiling import compiling_environment
from core_mlx_lm_bridge.process import WorkerProcess
from core_mlx_lm_bridge.protocol import Load
from core_mlx_lm_bridge.session import WorkerSession, WorkerSettings

# What mlx-lm does with SiLU; MLX compiles it, or loads the library that is there already.
COMPILES = """
import tempfile, mlx.core as mx, mlx.nn as nn
print(float(nn.silu(mx.zeros((1,))).item()), tempfile.NamedTemporaryFile().name, flush=True)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MLX_DISABLE_COMPILE", raising=False)
    return tmp_path / "cache" / "core" / "kernels"


def said(code: str, **environment: str) -> str:
    """What a worker's interpreter answers, started as a session starts it."""
    code = f"import sys; sys.stdout = open(int(sys.argv[2]), 'w')\n{code}"
    worker = WorkerProcess([sys.executable, "-c", code], {**compiling_environment(), **environment})
    try:
        while (line := worker.line(0.1)) is None:
            assert not worker.ended, worker.stderr_tail()
        return line.decode()
    finally:
        worker.kill()


def test_a_private_folder(cache: Path) -> None:
    folder = Path(compiling_environment()["TMPDIR"])
    assert folder.parent == cache
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert compiling_environment() == {"TMPDIR": str(folder)}  # the same the next time
    assert Path(said("import tempfile; print(tempfile.mkdtemp(), flush=True)")).parent == folder


@pytest.mark.parametrize("unfit", ["/dev/null", "open", "link"])
def test_without_one_nothing_is_compiled(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unfit: str
) -> None:
    folder = Path(compiling_environment()["TMPDIR"])
    if unfit == "open":
        folder.chmod(0o777)
    elif unfit == "link":
        folder.rmdir()
        folder.symlink_to(tmp_path)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", unfit)
    assert compiling_environment() == {"MLX_DISABLE_COMPILE": "1"}


def test_nor_where_no_code_may_be_run(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(os.statvfs("/"))
    found[8] = getattr(os, "ST_NOEXEC", 8)
    monkeypatch.setattr(os, "ST_NOEXEC", 8, raising=False)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(found))
    assert compiling_environment() == {"MLX_DISABLE_COMPILE": "1"}


def test_every_start_of_a_session_has_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the option ``env`` says nothing of it; where it does, it wins."""
    seen: list[dict[str, str]] = []

    def start(command: object, environment: dict[str, str]) -> None:
        seen.append(environment)
        raise OSError("no")

    monkeypatch.setattr(session, "WorkerProcess", start)
    for environment in ({}, {"TMPDIR": "/mine"}):
        with pytest.raises(BackendUnavailableError):
            WorkerSession(WorkerSettings("mlx_lm", ("p",), environment, Load(), 1.0)).start(
                lambda: None
            )
    assert seen == [compiling_environment(), {"TMPDIR": "/mine"}]


needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("g++") is None, reason="MLX compiles with g++ on Linux"
)


@needs_compiler
def test_a_planted_library_is_not_loaded(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("TMPDIR", str(shared))
    say_where = "import tempfile; print(tempfile.gettempdir(), flush=True)"
    assert said(say_where) != str(shared)
    # The attacker knows the names: MLX gives them to everybody.
    subprocess.run([sys.executable, "-c", COMPILES], check=True, capture_output=True)
    (library,) = shared.rglob("lib*.so")
    mark = tmp_path / "ran"
    source = f"""#include <stdio.h>
        __attribute__((constructor)) void run() {{ fclose(fopen("{mark}", "w")); }}"""
    command = ["g++", "-x", "c", "-shared", "-fPIC", "-o", str(library), "-"]
    subprocess.run(command, input=source.encode(), check=True)
    subprocess.run([sys.executable, "-c", COMPILES], capture_output=True)
    assert mark.exists()  # that is how a program without this falls for it
    mark.unlink()

    assert said(COMPILES).startswith("0.0 ")
    assert not mark.exists()
    (own,) = cache.rglob("lib*.so")
    assert own.name == library.name
