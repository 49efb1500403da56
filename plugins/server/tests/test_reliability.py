"""The server under a crowd, under signals, and under whatever bytes: it answers, ends, returns."""

from __future__ import annotations

import json
import os
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

pytestmark = pytest.mark.load  # a busy machine can make it fail

HERE = Path(__file__).parent
if sys.platform != "linux":
    pytest.skip("reads /proc", allow_module_level=True)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Process:
    """A server's process, and what it holds."""

    def __init__(self, command: Sequence[str], port: int, log: Path) -> None:
        self.port, self.log = port, log
        with log.open("ab") as stream:
            self.popen = subprocess.Popen(command, stdout=stream, stderr=stream)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as reply:
            return str(reply.read().decode())

    def wait_until_it_lives(self) -> None:
        for _ in range(2400):
            try:
                self.get("/health")
            except OSError:
                assert self.popen.poll() is None, self.log.read_text()
                time.sleep(0.05)
            else:
                return
        raise AssertionError(self.log.read_text())

    def counted(self) -> dict[str, float]:
        lines = [line for line in self.get("/metrics").splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.popen.pid}/fd"))

    def resident(self) -> int:
        """Bytes of memory."""
        pages = Path(f"/proc/{self.popen.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def children(self) -> list[int]:
        ids = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children").read_text()
        return [*map(int, ids.split())]


def settled(process: Process, descriptors: int) -> dict[str, float]:
    """The counters, once nothing is under way and the connections are gone; within two minutes."""
    for _ in range(1200):
        counted = process.counted()
        if not counted["core_requests"] and process.descriptors() <= descriptors + 1:
            return counted
        time.sleep(0.1)
    raise AssertionError((counted, process.descriptors(), descriptors))


def visited(
    process: Process, model: str, clients: int, seconds: float, seed: int
) -> dict[str, int]:
    """What came of a crowd's visits."""
    words = [process.port, model, clients, seconds, seed]
    command = [sys.executable, str(HERE / "crowd.py"), *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=seconds + 500
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen: dict[str, int] = json.loads(done.stdout)
    return seen


@contextmanager
def serving(command: Sequence[str], port: int, log: Path) -> Iterator[Process]:
    process = Process(command, port, log)
    try:
        process.wait_until_it_lives()
        yield process
    finally:
        process.popen.kill()
        process.popen.wait()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Process]:
    port = free_port()
    command = [sys.executable, str(HERE / "fake_server.py"), str(port)]
    with serving(command, port, tmp_path / "log") as process:
        yield process


def ended(process: Process) -> None:
    """SIGTERM has to be obeyed, and nothing may have gone wrong on the way."""
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(120) in (0, -signal.SIGTERM), process.log.read_text()
    assert "Traceback" not in process.log.read_text(), process.log.read_text()[-5000:]


# --------------------------------------------------------------------------- a crowd


def stands(process: Process, model: str, clients: int, seconds: float, growth: int) -> None:
    """A crowd comes and goes; then each accepted request has ended once, and all is returned."""
    descriptors = process.descriptors()
    visited(process, model, clients, min(seconds, 10.0), 0)  # what is made once is made now
    settled(process, descriptors + 24)
    descriptors, resident = process.descriptors(), process.resident()

    seen = visited(process, model, clients, seconds, 1)
    assert {"whole 200", "streamed 200", "lines 200", "vanished", "garbage"} <= seen.keys(), seen
    counted = settled(process, descriptors)
    assert counted["core_requests_begun_total"] == counted["core_requests_ended_total"] > 0
    answered = sum(value for name, value in counted.items() if name.startswith("core_answers"))
    assert answered >= counted["core_requests_ended_total"]
    server_errors = [name for name in counted if name.startswith('core_answers_total{status="5')]
    assert server_errors == []
    assert process.resident() - resident < growth, (resident, process.resident())
    ended(process)


def test_a_crowd_comes_and_goes(fake: Process) -> None:
    stands(fake, "fake", clients=40, seconds=2.0, growth=64 << 20)


@pytest.mark.slow
def test_a_crowd_of_two_hundred_for_a_minute(fake: Process) -> None:
    stands(fake, "fake", clients=200, seconds=60.0, growth=64 << 20)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["mlx_cpu", "llama_cpp"])
def test_a_crowd_at_a_real_model(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    model: Path = request.getfixturevalue("smollm2_dir" if backend == "mlx_cpu" else "smollm2_gguf")
    with serving(*real(model, backend, tmp_path)) as process:
        stands(process, name_of(model), clients=200, seconds=60.0, growth=256 << 20)


def name_of(model: Path) -> str:
    return model.name.removesuffix(".gguf")


def real(model: Path, backend: str, tmp_path: Path) -> tuple[list[str], int, Path]:
    port = free_port()
    options = ["--backend", backend, "--port", str(port)]
    command = [sys.executable, "-m", "core", "serve", str(model), *options]
    return command, port, tmp_path / "log"


# --------------------------------------------------------------------------- signals


def begin_streams(process: Process, model: str, count: int) -> list[socket.socket]:
    """Streams whose first bytes are there."""
    body = json.dumps({"model": model, "prompt": "The sea", "max_tokens": 40, "stream": True})
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", process.port), timeout=120)
        connection.sendall((head + body).encode())
        connections.append(connection)
    for connection in connections:
        assert connection.recv(1, socket.MSG_PEEK)
    return connections


def rest(connection: socket.socket) -> bytes:
    """All that still comes; b"" where it was reset."""
    received = b""
    try:
        while more := connection.recv(1 << 16):
            received += more
    except ConnectionError:
        return b""
    finally:
        connection.close()
    return received


def drains(process: Process, model: str, count: int) -> None:
    """SIGTERM loses none of the streams that were accepted, and lets nobody in any more."""
    connections = begin_streams(process, model, count)
    process.popen.send_signal(signal.SIGTERM)
    for connection in connections:
        assert b"data: [DONE]\n\n" in rest(connection)
    ended(process)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", process.port), timeout=60)


def test_sigterm_under_load_loses_nothing(fake: Process) -> None:
    drains(fake, "fake", 32)


def test_sigkill_under_load_hangs_nobody_and_the_next_server_serves(
    fake: Process, tmp_path: Path
) -> None:
    connections = begin_streams(fake, "fake", 32)
    fake.popen.kill()
    for connection in connections:
        rest(connection)  # which ends, with or without a reset
    fake.popen.wait()
    command = [sys.executable, str(HERE / "fake_server.py"), str(fake.port)]
    with serving(command, fake.port, tmp_path / "log2") as again:
        [stream] = begin_streams(again, "fake", 1)
        again.popen.send_signal(signal.SIGTERM)
        assert b"data: [DONE]\n\n" in rest(stream)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signals_at_a_real_model(number: signal.Signals, smollm2_dir: Path, tmp_path: Path) -> None:
    with serving(*real(smollm2_dir, "mlx_cpu", tmp_path)) as process:
        if number == signal.SIGTERM:
            drains(process, smollm2_dir.name, 16)
            return
        connections = begin_streams(process, smollm2_dir.name, 16)
        children = process.children()
        process.popen.kill()
        for connection in connections:
            rest(connection)
        for _ in range(600):
            if not any(Path(f"/proc/{child}").exists() for child in children):
                break
            time.sleep(0.1)
        assert not [child for child in children if Path(f"/proc/{child}").exists()]


# --------------------------------------------------------------------------- who asks for too much


_MEMORY = 3 << 30  # bytes of address space; what the server takes for requests is a part of it
_HOUR = float(os.environ.get("CORE_SERVER_HOSTILE_SECONDS", "3600"))


def withstands(tmp_path: Path, seconds: float, seed: int) -> None:
    """Hostile clients take neither its memory nor its time; then all is given back."""
    port = free_port()
    command = [sys.executable, str(HERE / "hostile_server.py"), str(port), str(_MEMORY)]
    with serving(command, port, tmp_path / "log") as process:
        descriptors = process.descriptors()
        words = [sys.executable, str(HERE / "hostile.py"), str(port), str(seconds), str(seed)]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=seconds + 500
        )
        assert done.returncode == 0, done.stderr[-3000:]
        seen: dict[str, int] = json.loads(done.stdout)
        assert [name for name in seen if name.startswith("wrong")] == [], seen
        assert {"products", "half", "stalled", "fitting", "asked"} <= seen.keys(), seen
        assert seen["served"] > 0.8 * seen["asked"], seen
        assert seen["slowest_ms"] < 60_000, seen

        counted = settled(process, descriptors)
        assert counted["core_requests_begun_total"] == counted["core_requests_ended_total"]
        assert counted["core_memory_bytes"] == counted["core_spooled_bytes"] == 0
        assert 'core_answers_total{status="500"}' not in counted, counted
        assert process.resident() < _MEMORY // 2
        sys.stdout.write(f"{seen} {process.resident() >> 20} MB\n")
        ended(process)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_hostile_clients_for_half_a_minute(tmp_path: Path, seed: int) -> None:
    withstands(tmp_path, 30.0, seed)


@pytest.mark.long
def test_hostile_clients_for_an_hour(tmp_path: Path) -> None:
    withstands(tmp_path, _HOUR, 3)
