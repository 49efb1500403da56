"""``infer-cli serve`` as a process with a real model, judged by System One's own suite."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import core
from core_server import Served, create_app

pytestmark = pytest.mark.load  # a busy machine can make it fail

KEY = "a-key"
SERVE = (sys.executable, "-m", "core", "serve")


@contextmanager
def served(
    model: Path,
    backend: str,
    log: Path,
    key: str = KEY,
    others: Sequence[Path] = (),
    more: Sequence[str] = (),
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server of this model, by its address; it is sent SIGTERM in the end, and has to obey."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--backend", backend, "--port", str(port), "--api-key", key, *more)
    with log.open("wb") as stream:
        command = [*SERVE, str(model), *map(str, others), *options]
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_until_it_lives(address, process, log)
        yield address, process
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM), log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()


def _wait_until_it_lives(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(1200):
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        else:
            return
    raise AssertionError(log.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["mlx_cpu", "llama_cpp"])
def test_jevcompat_finds_nothing_wrong(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """With a key and without: one requirement cannot be tested with it, and two without."""
    model = request.getfixturevalue("smollm2_dir" if backend == "mlx_cpu" else "smollm2_gguf")
    passed, failed = set[str](), set[str]()
    for key in (KEY, ""):
        with served(model, backend, tmp_path / "log", key) as (address, _):
            for requirement in _judged(address, key, tmp_path / "report.json"):
                requirements = passed if requirement["status"] == "pass" else failed
                if requirement["status"] in ("pass", "fail"):
                    requirements.add(f"{requirement['level']} {requirement['id']}")
    assert failed == set()
    assert sum(name.startswith("MUST") for name in passed) == 33
    assert sum(name.startswith("SHOULD") for name in passed) == 15


def _judged(address: str, key: str, report: Path) -> list[dict[str, str]]:
    words = [
        "test",
        address,
        "--timeout",
        "600",
        "--json",
        str(report),
        *(("--key", key) if key else ()),
    ]
    judge = "import sys; from jevcompat.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", judge, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert report.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    requirements: list[dict[str, str]] = json.loads(report.read_text())["results"]
    report.unlink()
    return requirements


def test_the_instructions_of_a_question_are_kept_between_requests(smollm2_dir: Path) -> None:
    """Where they end, the second request shows; from the third on they are computed no more."""
    question = {
        "type": "choice",
        "instructions": "Which field of the newspaper does this sentence belong to? " * 12,
        "criteria": {"finance": None, "sports": None},
    }
    model = core.load_model(smollm2_dir, backend="mlx_cpu")
    with TestClient(create_app([Served("m", model)])) as client:
        usages = [
            client.post(
                "/v1/systemone", json={"model": "m", "state": state, "questions": {"q": question}}
            ).json()["usage"]
            for state in (
                "Shares fell by a tenth.",
                "The striker scored.",
                "Rates rose.",
                "A goal!",
            )
        ]
        measures = client.get("/metrics").text
    assert usages[0]["x_cached_tokens"] == 0
    assert all(usage["x_cached_tokens"] > 100 for usage in usages[2:]), usages
    [counted] = [line for line in measures.splitlines() if "decision_cached_tokens_total{" in line]
    assert float(counted.split()[-1]) == sum(usage["x_cached_tokens"] for usage in usages)


@pytest.mark.slow
def test_two_models_take_turns_under_a_limit(
    smollm2_dir: Path, smollm2_gguf: Path, tmp_path: Path
) -> None:
    """The limit holds one of them: each is there when it is asked for, and says what it says."""
    limit = ("--memory-limit", "600MB")
    names = [smollm2_dir.name, smollm2_gguf.name.removesuffix(".gguf")]
    with served(smollm2_dir, "", tmp_path / "log", "", [smollm2_gguf], limit) as (address, _):

        def texts() -> list[str]:
            answers = []
            for name in names:
                body = {"model": name, "prompt": "The capital of France is", "max_tokens": 3}
                data = json.dumps(body).encode()
                with urllib.request.urlopen(f"{address}/v1/completions", data, 120) as reply:
                    answers.append(json.load(reply)["choices"][0]["text"])
            return answers

        first = texts()
        assert all(text.startswith(" Paris") for text in first)
        assert texts() == first
        with urllib.request.urlopen(f"{address}/metrics", timeout=60) as reply:
            measures = reply.read().decode()
    for name in names:
        assert f'core_model_loads_total{{model="{name}"}} 2.0' in measures


def test_what_was_accepted_is_answered_behind_sigterm(smollm2_dir: Path, tmp_path: Path) -> None:
    with served(smollm2_dir, "mlx_cpu", tmp_path / "log") as (address, process):
        body = {"model": "jev-latest", "prompt": "The sea", "max_tokens": 48, "stream": True}
        request = urllib.request.Request(
            f"{address}/v1/completions",
            json.dumps(body | {"model": smollm2_dir.name}).encode(),
            {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            first = answer.readline()
            process.send_signal(signal.SIGTERM)
            rest = answer.read()
    assert first.startswith(b"data: ")
    assert rest.endswith(b"data: [DONE]\n\n")
    assert b'"finish_reason":"length"' in rest or b'"finish_reason":"stop"' in rest


def test_an_address_that_others_reach_needs_a_key(tmp_path: Path) -> None:
    words = [*SERVE, str(tmp_path), "--host", "0.0.0.0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "set --api-key" in done.stderr


def test_two_models_of_one_name_cannot_be_told_apart(tmp_path: Path) -> None:
    words = [*SERVE, str(tmp_path / "a" / "mine"), str(tmp_path / "b" / "mine.gguf")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "are named 'mine'" in done.stderr
