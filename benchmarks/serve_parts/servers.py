"""Servers as separate processes: ours, and those that it is compared with."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_READY_SECONDS = 300.0
_MLX_LM = """
from core_mlx_native.cpu.blas import ensure_blas
ensure_blas()  # before mlx: the bundled one would be many times slower
import mlx.core as mx
mx.set_default_device(mx.cpu)
from mlx_lm.server import main
main()
"""


class MissingError(Exception):
    """A server that is not installed here; the message has the command to install it."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that listens."""

    name: str
    port: int


def core_serve(model: Path, backend: str, slots: int = 0) -> list[str]:
    """``infer-cli serve``."""
    options = ["--backend", backend, "--parallel-slots", str(slots), "--max-queue", "4096"]
    return [sys.executable, "-m", "core", "serve", str(model), *options]


def nothing_to_compute() -> list[str]:
    """Ours, with a model that answers at once: what is left is the server's own time."""
    return [sys.executable, "-m", "benchmarks.serve_parts.idle_server"]


def llama_cpp_python(model: Path, *, logprobs: bool) -> list[str]:
    """llama-cpp-python's own server, on all cores; ``logprobs`` it has only of all positions.

    Raises `MissingError`.
    """
    _needs("llama-cpp-python[server]", "llama_cpp", "fastapi", "sse_starlette", "starlette_context")
    cores = str(os.cpu_count() or 1)
    options = ["--n_threads", cores, "--n_threads_batch", cores, "--n_gpu_layers", "0"]
    command = [sys.executable, "-m", "llama_cpp.server", "--model", str(model), *options]
    return [*command, "--n_ctx", "2048", "--verbose", "False", "--logits_all", str(logprobs)]


def mlx_lm(model: Path, clients: int) -> list[str]:
    """mlx-lm's own server, which runs as many prompts at once as it has clients.

    Raises `MissingError`.
    """
    _needs("mlx-lm", "mlx_lm")
    options = ["--prompt-concurrency", str(clients), "--decode-concurrency", str(clients)]
    return [sys.executable, "-c", _MLX_LM, "--model", str(model), *options]


def _needs(distribution: str, *modules: str) -> None:
    if missing := [name for name in modules if find_spec(name) is None]:
        raise MissingError(f"{', '.join(missing)} missing: pip install '{distribution}'")


@contextmanager
def running(name: str, command: Sequence[str]) -> Iterator[Server]:
    """Start a server, wait until it answers, and end it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    words = [*command, "--host", "127.0.0.1", "--port", str(port)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            words, stdout=log, stderr=log, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}
        )
        try:
            if not _answers(port, process):
                log.seek(0)
                output = log.read().decode(errors="replace")[-2000:]
                raise RuntimeError(f"{name} does not answer:\n{output}")
            yield Server(name, port)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + _READY_SECONDS
    while process.poll() is None and time.monotonic() < until:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False
