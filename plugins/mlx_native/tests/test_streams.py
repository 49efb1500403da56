"""The threads that MLX computes with on a CPU: as many as models are open at once, not more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Checkpoint = Callable[..., Path]

BEGIN = """
import os, sys, threading, time
import core

def load():
    return core.load_model(sys.argv[1], backend="mlx_cpu", options={"token_budget": 64})

def use(model):
    caller = threading.Thread(target=calls, args=[model])  # a thread of its own, as in a service
    caller.start()
    caller.join()

def calls(model):
    model.classify(["ab no " * 8] * 64, labels=["ab", "no"])  # large enough for lanes
    list(model.generate("ab", max_tokens=2))
    model.score(["ab"], [" no"])
    model.inspect_attention("ab")

def threads(most=0):
    # Where there are more than that, once those that are ending have ended.
    until = time.monotonic() + (20 if most else 0.2)
    while (count := len(os.listdir("/proc/self/task"))) > most and time.monotonic() < until:
        time.sleep(0.01)
    return count

"""

pytestmark = [
    pytest.mark.load,
    pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc"),
]


def child(directory: Path, code: str) -> list[int]:
    """What a process prints, as whole numbers."""
    command = [sys.executable, "-c", BEGIN + code, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [int(word) for word in done.stdout.split()]


def test_fifty_loads_leave_as_many_threads_as_two(checkpoint: Checkpoint) -> None:
    code = """
for index in range(50):
    with load() as model:
        if index in (0, 1, 25, 49):
            use(model)
    if index == 1:
        before = threads()
print(threads(before) - before)
"""
    assert child(checkpoint(), code) <= [0]


def test_so_do_models_that_are_dropped_and_loads_that_fail(checkpoint: Checkpoint) -> None:
    code = """
import contextlib, gc, pathlib
weights = pathlib.Path(sys.argv[1], "model.safetensors")
whole = weights.read_bytes()
for index in range(12):
    use(load())
    gc.collect()
    weights.write_bytes(whole[:-1])
    with contextlib.suppress(core.ModelError):
        load()
    weights.write_bytes(whole)
    while any(thread.name.startswith("core-model") for thread in threading.enumerate()):
        time.sleep(0.01)
    if index == 1:
        before = threads()
print(threads(before) - before)
"""
    assert child(checkpoint(), code) <= [0]


def test_models_that_are_open_at_once_hand_theirs_on_too(checkpoint: Checkpoint) -> None:
    code = """
for index in range(5):
    models = [load() for _ in range(4)]
    for model in models:
        model.score(["ab"], [" no"])
    callers = [threading.Thread(target=model.close) for model in models]
    for caller in callers: caller.start()
    for caller in callers: caller.join()
    if index == 1:
        before = threads()
print(threads(before) - before)
"""
    assert child(checkpoint(), code) <= [0]


def test_a_stream_is_handed_on_with_nothing_queued_in_it() -> None:
    code = """
import core_mlx_native.cpu.blas
core_mlx_native.cpu.blas.ensure_blas()
import mlx.core as mx
from core_mlx_native.loading import own_stream

def work():
    with own_stream():
        held.append(mx.ones((700, 700)) @ mx.ones((700, 700)))
        mx.async_eval(held[-1])
    print(int(held[-1][0, 0].item()))  # from outside: it is there already

held = []
for _ in range(4):
    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
"""
    assert child(Path(), code) == [700] * 4
