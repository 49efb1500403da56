"""Work in a pool: it runs once, and somewhere in any case."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from core.kit.base import never_stop
from core_runtime.threads import begin, outlasting


class NoThread(ThreadPoolExecutor):
    """A pool that queues a job and then gets no thread for it, as where the system has no more."""

    def __init__(self) -> None:
        super().__init__(1)
        self.queued: list[Callable[[], object]] = []

    def submit(self, job: Callable[[], object]) -> Future[object]:  # type: ignore[override]
        self.queued.append(job)
        raise RuntimeError("can't start new thread")


def test_a_job_runs_in_the_pool() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert begin(pool, lambda: 3).result() == 3


def test_without_a_thread_it_runs_here_and_never_again() -> None:
    runs = []
    pool = NoThread()
    future = begin(pool, lambda: runs.append(1))
    assert future.done()
    for job in pool.queued:  # a worker of before comes round
        job()
    assert runs == [1]


def test_behind_the_end_of_the_interpreter_it_runs_here() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    assert begin(pool, lambda: 3).result() == 3


@pytest.mark.parametrize("pool", [ThreadPoolExecutor(1), NoThread()])
def test_its_error_waits_for_who_reads_it(pool: ThreadPoolExecutor) -> None:
    def fail() -> None:
        raise ValueError("this job")

    future = begin(pool, fail)
    with pytest.raises(ValueError, match="this job"):
        future.result()


@pytest.fixture
def quick_turns() -> Iterator[None]:
    """Threads that take turns as often as they can, so that one is met before it has ended."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("quick_turns")
def test_behind_a_job_that_outlasts_its_caller_its_thread_is_gone() -> None:
    def fail() -> None:
        raise ValueError("this job")

    for job in (lambda: None, fail) * 50:
        with suppress(ValueError):
            outlasting(job, never_stop)
        assert not [one for one in threading.enumerate() if "core-outlasting" in one.name]


_FORK = """
import os
from core_runtime.owner import OwnerThread
import concurrent.futures.thread as pools  # behind it, as in a program

held = []
owner = OwnerThread("test", settle=lambda: held.append(pools._global_shutdown_lock.locked()))
if os.fork() == 0:
    os._exit(0)
os.wait()
owner.close(lambda: None)
print(held)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_waits_for_jobs_that_may_still_ask_a_pool() -> None:
    """With the lock of the pools taken first, a job that wants one would hold the fork up."""
    done = subprocess.run([sys.executable, "-c", _FORK], stdout=subprocess.PIPE, check=True)
    assert done.stdout.split() == [b"[False]"]
