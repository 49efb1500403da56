"""Signal handlers that end the worker for whose answer the interrupted thread waits."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

import core
from core_mlx_lm_bridge.model import BridgeModel
from core_mlx_lm_bridge.process import WorkerProcess

pytestmark = pytest.mark.load  # a busy machine can make it fail

Fake = Callable[..., BridgeModel]
SILENT = "import os, sys, time; os.write(int(sys.argv[2]), b'ready\\n'); time.sleep(600)"


@pytest.fixture
def soon() -> Callable[[Callable[[], None]], None]:
    """Makes a call in a signal handler, a moment from now."""

    def arrange(call: Callable[[], None]) -> None:
        signal.signal(signal.SIGALRM, lambda *_: call())
        signal.setitimer(signal.ITIMER_REAL, 0.2)

    return arrange


def test_a_handler_ends_the_worker_that_is_waited_for(
    soon: Callable[[Callable[[], None]], None],
) -> None:
    before = len(os.listdir("/dev/fd"))
    worker = WorkerProcess([sys.executable, "-c", SILENT], {})
    while worker.line(0.1) is None:
        assert worker.alive
    soon(lambda: worker.quit(b"\n"))
    while worker.alive:
        assert worker.line(60) is None
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)
    assert len(os.listdir("/dev/fd")) == before


def test_a_handler_closes_the_model_that_is_read(
    fake: Fake, soon: Callable[[Callable[[], None]], None]
) -> None:
    model = fake()
    before = len(os.listdir("/dev/fd"))
    pid = next(model.generate("pid")).id
    stream = model.generate("fault hang 1")
    next(stream)
    soon(model.close)
    with pytest.raises(core.ModelClosedError):
        list(stream)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert len(os.listdir("/dev/fd")) == before - 3


def test_an_interrupt_just_behind_the_sending_of_a_request(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows that request's number; its answers are passed over, and it is cancelled."""
    model = fake()
    pid = next(model.generate("pid")).id
    session = model._line.session
    send = session._send

    def interrupted(message: Any) -> int:
        send(message)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(session, "_send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(model.generate("count 100000 0.001"))
    assert [token.id for token in model.generate("count 3")] == [0, 1, 2]
    assert next(model.generate("pid")).id == pid
