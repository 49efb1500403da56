"""Ctrl-C behind any call of a close, or behind a load, leaves neither a thread nor a descriptor."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

import core
from core_llama_cpp import loading
from core_llama_cpp.session import LlamaSession

Interrupts = Callable[[int], AbstractContextManager[None]]
pytestmark = [
    pytest.mark.load,
    pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # dropped, and closed by it
]


def left() -> tuple[int, int]:
    """Threads of Python's and descriptors that are more than before, once what goes is gone.

    What other tests have left may go meanwhile: it is not counted.
    """
    end = time.monotonic() + 30
    while (found := _more()) > (0, 0):
        gc.collect()
        if time.monotonic() > end:
            break
        time.sleep(0.001)
    return found


def _more() -> tuple[int, int]:
    threads, descriptors = BEFORE[0]
    new = set(threading.enumerate()) - threads
    return len(new), max(0, len(os.listdir("/proc/self/fd")) - descriptors)


BEFORE: list[tuple[set[threading.Thread], int]] = []


@pytest.fixture
def path(tiny_gguf: Callable[..., Path]) -> Path:
    """A model that was loaded once, so that what a process keeps is there."""
    path = tiny_gguf()
    core.load_model(path, backend="llama_cpp").close()
    BEFORE[:] = [(set(threading.enumerate()), len(os.listdir("/proc/self/fd")))]
    return path


@pytest.mark.slow
def test_of_a_close(path: Path, interrupted_behind: Interrupts) -> None:
    for calls in itertools.count():
        model = core.load_model(path, backend="llama_cpp")
        with suppress(KeyboardInterrupt), interrupted_behind(calls):
            model.close()
            break
        del model
        assert left() == (0, 0), f"behind call {calls}"
    assert calls > 10


def test_behind_a_load(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was loaded is freed at once, and no thread is there any more when the caller goes on."""
    freed: list[LlamaSession] = []
    close = LlamaSession.close

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def noted(session: LlamaSession) -> None:
        freed.append(session)
        close(session)

    monkeypatch.setattr(loading, "LlamaModel", interrupted)
    monkeypatch.setattr(LlamaSession, "close", noted)
    with pytest.raises(KeyboardInterrupt):
        core.load_model(path, backend="llama_cpp")
    assert len(freed) == 1
    assert not set(threading.enumerate()) - BEFORE[0][0]
