"""Interrupts, forks, and the end of a process while streams are open. Each in a child process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.load  # a busy machine can make it fail

Checkpoint = Callable[..., Path]

# Wide enough for the model's thread to be inside of MLX nearly all the time.
SIZES = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4}
BEGIN = """
import contextlib, os, sys, threading
import core
model = core.load_model(
    sys.argv[1], backend="mlx_cpu", context_overflow="rotate", parallel_slots=1
)
endless = core.GenerateConfig(max_tokens=10**9)
"""


@pytest.fixture
def endless(checkpoint: Checkpoint) -> Path:
    """A model that never ends a text by itself."""
    directory = checkpoint("llama", **SIZES)
    (directory / "tokenizer_config.json").unlink()
    assert json.loads((directory / "config.json").read_text())["hidden_size"] == 256
    return directory


def child(directory: Path, code: str) -> subprocess.Popen[str]:
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", BEGIN + code]
    return subprocess.Popen([*command, str(directory)], **options)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit status and what it wrote; a child that hangs is killed, with its stacks shown."""
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        pytest.fail(f"the process hangs: {process.communicate()[1]}")
    return process.returncode, out, err


OPEN = {
    "unread": "stream = model.submit('ab', endless)",
    "read": "stream = model.generate('ab', endless); next(stream)",
    "several": "streams = [model.submit('ab', endless) for _ in range(9)]; next(streams[0])",
    "dropped": "stream = model.submit('ab', endless); next(stream); del stream, model",
    "rows": "rows = model.batch_stream(['ab', 'no'], endless); next(rows)",
    "daemon reads": (
        "stream = model.submit('ab', endless); next(stream)\n"
        "def work():\n"
        "    with contextlib.suppress(core.ModelClosedError): list(stream)\n"
        "threading.Thread(target=work, daemon=True).start()"
    ),
    "daemons call": (
        "def work():\n"
        "    with contextlib.suppress(core.ModelClosedError):\n"
        "        while True: model.classify(['ab'] * 9)\n"
        "for _ in range(5): threading.Thread(target=work, daemon=True).start()\n"
        "next(model.submit('ab', endless))"
    ),
    "closed in a finalizer": (
        "def read():\n"
        "    stream = model.submit('ab', endless)\n"
        "    try: yield from stream\n"
        "    finally: stream.close()\n"
        "tokens = read(); next(tokens)"
    ),
    "closed at exit": (
        "import atexit; atexit.register(model.close)\n"
        "stream = model.submit('ab', endless); next(stream)"
    ),
    "used at exit": (
        "stream = model.submit('ab', endless); next(stream)\n"
        "class Late:\n"
        "    def __del__(self):\n"
        "        try: list(stream)\n"
        "        except closed: os.write(1, b'closed')\n"
        "late, closed = Late(), core.ModelClosedError"
    ),
}


@pytest.mark.parametrize("how", OPEN)
def test_a_process_may_end_with_open_streams(endless: Path, how: str) -> None:
    code, out, err = finish(child(endless, OPEN[how] + "\nprint('end', flush=True)"))
    assert (code, err) == (0, "")
    assert out.split() == (["end", "closed"] if how == "used at exit" else ["end"])


def test_an_exception_ends_the_process_as_always(endless: Path) -> None:
    code, _, err = finish(child(endless, "next(model.submit('ab', endless)); exit(7)"))
    assert (code, err) == (7, "")
    code, _, err = finish(child(endless, OPEN["read"] + "; 1 // 0"))
    assert code == 1
    assert err.splitlines()[-1].startswith("ZeroDivisionError")


WAITS = {
    "a stream that waits for a slot": "blocker = model.submit('ab', endless)\nfor _ in "
    "model.submit('ab', endless): pass",
    "a stream": "for _ in model.generate('ab', endless): pass",
    "a batch": "model.batch_generate(list('abcde'), endless)",
    "a batch stream": "for _ in model.batch_stream(list('abcde'), endless): pass",
}
INTERRUPTED = """
def call():
    {0}
try:
    print("ready", flush=True)
    call()
except KeyboardInterrupt:
    pass
three = core.GenerateConfig(max_tokens=3, timeout=250)
print(len(list(model.submit("ab", three))), flush=True)
"""


@pytest.mark.parametrize("what", WAITS)
def test_an_interrupt_while_it_waits_leaves_no_row(endless: Path, what: str) -> None:
    call = WAITS[what].replace("\n", "\n    ")
    process = child(endless, INTERRUPTED.format(call))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out, err) == (0, "3\n", "")


@pytest.mark.parametrize("what", WAITS)
def test_an_interrupt_ends_the_program(endless: Path, what: str) -> None:
    process = child(endless, f"print('ready', flush=True)\n{WAITS[what]}")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == -signal.SIGINT
    assert err.splitlines()[-1] == "KeyboardInterrupt"


def test_a_signal_handler_may_close_the_model_while_it_closes(endless: Path) -> None:
    code = """
import signal
stream = model.submit("ab", endless)
next(stream)
def handler(*_):
    model.close()
    print("handled", flush=True)
signal.signal(signal.SIGUSR1, handler)
release = model.release
def slow():
    os.kill(os.getpid(), signal.SIGUSR1)
    release()
model.release = slow
model.close()
print("closed", flush=True)
"""
    assert finish(child(endless, code)) == (0, "handled\nclosed\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_in_the_middle_of_a_stream_is_refused(endless: Path) -> None:
    code = """
stream, unread = model.submit("ab", endless), model.generate("ab", endless)
rows = model.batch_stream(["ab"], endless)
next(stream)
for _ in range(5):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    for _ in range(5):
        next(stream)
if os.fork() == 0:
    calls = [lambda: list(stream), lambda: list(unread), lambda: list(rows),
             lambda: list(model.submit("ab")), lambda: model.batch_generate(["ab"]),
             lambda: model.classify(["ab"]), model.memory]
    for call in calls:
        try:
            call()
        except core.ModelClosedError as error:
            print("spawn" in str(error), flush=True)
    stream.close()
    model.close()
    print(stream.finish_reason, flush=True)
    sys.exit(0)
assert os.wait()[1] == 0
print(next(stream).id >= 0, flush=True)
"""
    assert finish(child(endless, code)) == (0, "True\n" * 7 + "cancelled\nTrue\n", "")
