"""Write down what llama.cpp's server answers to the tests.

    python -m plugins.remote.tests.record_llama_server path/to/llama-server

It serves the file of `tiny_llama`, with the tests of `test_llama_server` as its client.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from plugins.remote.tests.replay import Recorder, serving
from plugins.remote.tests.serve_process import server
from plugins.remote.tests.test_llama_server import RECORDED, URL, command
from plugins.remote.tests.tiny_llama import write_model


def main() -> int:
    """Record, and say what pytest said: what fails then is recorded all the same."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        words = command(sys.argv[1], write_model(Path(folder) / "tiny.gguf"), port)
        with server(words, port, Path(folder) / "log") as url:
            recorder = Recorder(url)
            with serving(recorder.ask) as proxy:
                tests = str(Path(__file__).with_name("test_llama_server.py"))
                words = [sys.executable, "-m", "pytest", "-n0", "-q", tests]
                done = subprocess.run(words, env=os.environ | {URL: proxy})
    RECORDED.parent.mkdir(exist_ok=True)
    recorder.write(RECORDED, f"{folder}/")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
