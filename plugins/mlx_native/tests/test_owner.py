"""The owner thread: order, errors, interruption, and its end."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.loading import own_stream
from core_runtime.owner import OwnerThread

pytestmark = pytest.mark.load  # a busy machine can make it fail

Checkpoint = Callable[..., Path]


def test_jobs_run_one_after_another_on_one_thread_that_may_use_mlx() -> None:
    owner = OwnerThread("test", own_stream, mx.synchronize)
    lazy = owner.run(lambda: mx.ones((2,)) + 1)
    assert owner.run(lambda: lazy.tolist()) == [2.0, 2.0]  # its stream lives on that thread
    names = {owner.run(lambda: threading.current_thread().name) for _ in range(3)}
    assert names == {"core-test"}
    owner.close(lambda: None)


def test_errors_reach_the_caller_and_the_thread_lives_on() -> None:
    owner = OwnerThread("test", own_stream, mx.synchronize)
    with pytest.raises(ZeroDivisionError):
        owner.run(lambda: 1 // 0)
    with pytest.raises(SystemExit):
        owner.run(lambda: exit(3))
    assert owner.run(lambda: 5) == 5
    owner.close(lambda: None)


def test_close_waits_for_what_was_queued_and_refuses_what_comes_after() -> None:
    owner = OwnerThread("test", own_stream, mx.synchronize)
    done: list[str] = []
    started = threading.Event()

    def slow() -> None:
        started.set()
        time.sleep(0.1)
        done.append("slow")

    caller = threading.Thread(target=lambda: owner.run(slow))
    caller.start()
    assert started.wait(300)
    owner.close(lambda: done.append("last"))
    caller.join()
    assert done == ["slow", "last"]
    owner.close(lambda: done.append("again"))
    assert done == ["slow", "last"]
    with pytest.raises(core.ModelClosedError):
        owner.run(lambda: 1)


def live_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("core-")}


def test_a_closed_model_leaves_no_thread_and_no_weights(checkpoint: Checkpoint) -> None:
    directory = checkpoint(name="closing", hidden_size=256, intermediate_size=512)
    before = mx.get_active_memory()
    model = Cpu().load_model(directory, core.LoadConfig())
    assert "core-closing" in live_threads()
    assert mx.get_active_memory() > before + 1_000_000
    model.close()
    assert "core-closing" not in live_threads()
    assert mx.get_active_memory() <= before * 1.01


def test_a_dropped_model_leaves_no_thread_either(checkpoint: Checkpoint) -> None:
    model = Cpu().load_model(checkpoint(name="dropped"), core.LoadConfig())
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    deadline = time.monotonic() + 300
    while "core-dropped" in live_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "core-dropped" not in live_threads()


def test_a_failed_load_leaves_no_thread(checkpoint: Checkpoint) -> None:
    directory = checkpoint(name="failing")
    (directory / "tokenizer.json").unlink()
    with pytest.raises(core.TokenizerError):
        Cpu().load_model(directory, core.LoadConfig())
    assert "core-failing" not in live_threads()


def test_closing_while_calls_run_ends_each_of_them(checkpoint: Checkpoint) -> None:
    config = core.LoadConfig(options={"token_budget": 1})
    model = Cpu().load_model(checkpoint(name="busy"), config)
    outcomes: list[str] = []

    def work() -> None:
        try:
            outcomes.append(f"{len(model.classify(['ab'] * 50))} results")
        except core.ModelClosedError:
            outcomes.append("closed")

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    model.close()
    for thread in threads:
        thread.join(120)
    assert len(outcomes) == 6
    assert set(outcomes) <= {"closed", "50 results"}


def test_an_interrupt_while_the_thread_starts_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[threading.Thread] = []
    real = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        real(thread)
        begun.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        OwnerThread("test")
    begun[0].join(60)
    assert not begun[0].is_alive()
