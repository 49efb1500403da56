"""A server as a process of its own, for as long as a test runs."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE = 120.0


@contextmanager
def server(command: list[str], port: int, log: Path) -> Iterator[str]:
    """A server as a process, by its address, as soon as it answers."""
    environment = os.environ | {"MLX_DISABLE_COMPILE": "1", "OPENBLAS_NUM_THREADS": "1"}
    with log.open("wb") as told:
        process = subprocess.Popen(command, stdout=told, stderr=told, env=environment)
    try:
        end = time.monotonic() + _PATIENCE
        while not _answers(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5).close()
    except urllib.error.HTTPError as error:
        return error.code != 503  # it loads
    except OSError:
        return False
    return True
