"""The worker as a program: how it is started, and what it says without mlx-lm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_lm_bridge import loading
from core_mlx_lm_bridge.availability import ENVIRONMENT
from core_mlx_lm_bridge.backend import MlxLm
from core_mlx_lm_bridge.loading import WORKER
from core_mlx_lm_bridge.protocol import VERSION

BY_PATH = [sys.executable, str(WORKER)]
AS_MODULE = [sys.executable, "-m", "core_mlx_lm_bridge.worker"]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has neither msgspec nor mlx-lm."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory, symlinks=True)
    return directory / "bin" / "python"


def conversation(command: list[str], *requests: object, **environment: str) -> list[dict[str, Any]]:
    """All answers; the requests' end makes the worker exit, so the last one is ``info``'s."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
        cwd="/",
    )
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    for request in requests:
        line = request if isinstance(request, bytes) else json.dumps(request).encode()
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        answers.append(json.loads(process.stdout.readline()))
    process.stdin.close()
    assert process.wait(300) == 0
    assert process.stdout.read() == b""
    process.stdout.close()
    return answers


@pytest.mark.parametrize("command", [BY_PATH, AS_MODULE], ids=["path", "module"])
def test_it_answers(command: list[str]) -> None:
    wrong, version, early, unknown, empty = conversation(
        command,
        b"no JSON",
        {"type": "load", "id": 1, "path": "/nowhere", "version": VERSION + 1},
        {"type": "generate", "id": 2, "prompt": "a"},
        {"type": "dance", "id": 3},
        {"type": "info", "id": 4, "unknown": True},
    )
    assert (wrong["error"], wrong.get("id", 0)) == ("ProtocolError", 0)
    assert (version["error"], version["id"]) == ("ProtocolMismatchError", 1)
    assert f"version {VERSION + 1}" in version["message"]
    assert (early["error"], early["id"]) == ("ProtocolError", 2)
    assert (unknown["error"], unknown["id"]) == ("ProtocolError", 3)
    assert "No model is loaded" in empty["message"]


def test_quit() -> None:
    done = subprocess.run(BY_PATH, input=b'{"type":"quit"}\n', capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


def test_a_fuzzed_conversation() -> None:
    """10,000 lines of anything: an error each, and a sound answer at the end."""
    from random import Random

    dice = Random(3)
    lines = [bytes(dice.choices(range(32, 256), k=dice.randint(1, 30))) for _ in range(10_000)]
    lines.append(b'{"type":"info","id":9}')
    done = subprocess.run(
        [sys.executable, "-c", _PATIENT, str(WORKER)],
        input=b"\n".join(lines) + b"\n",
        capture_output=True,
        check=False,
        timeout=300,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines), done.stderr[-2000:]
    assert all(answer["type"] == "error" for answer in answers)
    assert sum("No model is loaded" in answer["message"] for answer in answers) == 1


# Ends the worker's stdin only when all answers are there, so that the end overtakes none.
_PATIENT = """
import subprocess, sys, threading
command, pipe = [sys.executable, sys.argv[1]], subprocess.PIPE
worker = subprocess.Popen(command, stdin=pipe, stdout=pipe)
lines = sys.stdin.buffer.readlines()
threading.Thread(target=lambda: (worker.stdin.writelines(lines), worker.stdin.flush())).start()
for _ in lines: sys.stdout.buffer.write(worker.stdout.readline())
worker.stdin.close()
sys.exit(worker.wait())
"""


def test_without_msgspec(bare_python: Path, fake_dir: Path) -> None:
    with pytest.raises(core.BackendUnavailableError) as caught:
        core.load_model(fake_dir, backend="mlx_lm", options={"python": str(bare_python)})
    assert f"{bare_python} -m pip install msgspec" in str(caught.value)


def test_without_mlx_lm(bare_python: Path, fake_dir: Path, tmp_path: Path) -> None:
    import msgspec

    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    options = {"python": str(bare_python), "env": {"PYTHONPATH": str(tmp_path)}}
    with pytest.raises(core.BackendUnavailableError) as caught:
        core.load_model(fake_dir, backend="mlx_lm", options=options)
    assert f"{bare_python} -m pip install 'mlx-lm" in str(caught.value)


def test_environment_variable(
    bare_python: Path, fake_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(bare_python))
    assert MlxLm().available()
    with pytest.raises(core.BackendUnavailableError, match="pip install msgspec"):
        core.load_model(fake_dir, backend="mlx_lm")
    monkeypatch.setenv(ENVIRONMENT, "/no/such/python")
    assert ENVIRONMENT in str(MlxLm().unavailable_reason())


def test_worker_does_not_see_our_modules() -> None:
    """Run by its path, its folder is not on sys.path: our plain names would hide others'."""
    code = (
        "import runpy, sys\n"
        "sys.path.insert(0, sys.argv[1].rpartition('/')[0])\n"
        "module = runpy.run_path(sys.argv[1])\n"
        "module['_make_package_known'](module['Path'](sys.argv[1]).parent)\n"
        "import importlib.util\n"
        "assert importlib.util.find_spec('capabilities') is None\n"
        "import core_mlx_lm_bridge.protocol\n"
    )
    subprocess.run([sys.executable, "-c", code, str(WORKER)], check=True, cwd="/")


def test_a_broken_model(fake_dir: Path, fast_blas: dict[str, str]) -> None:
    with pytest.raises(core.InvalidModelError, match=r"Cannot load .* with mlx-lm"):
        core.load_model(fake_dir, backend="mlx_lm", options={"env": fast_blas})
    no_tensors = (2).to_bytes(8, "little") + b"{}"  # mlx-lm reads them before it looks at the type
    (fake_dir / "model.safetensors").write_bytes(no_tensors)
    (fake_dir / "config.json").write_text('{"model_type": "no-such-type"}')
    with pytest.raises(core.UnsupportedModelError, match="no-such-type"):
        core.load_model(fake_dir, backend="mlx_lm", options={"env": fast_blas})
    assert "no-such-type" in str(MlxLm().refusal(fake_dir))
    assert loading.WORKER == WORKER
