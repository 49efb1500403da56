"""One owner thread for several models: each closes its own hold, and the last ends the thread."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from core.errors import ModelClosedError
from core_runtime.owner import OwnerThread

pytestmark = pytest.mark.load  # a busy machine can make it fail

PATIENCE = 60


def owners(count: int) -> list[OwnerThread]:
    first = OwnerThread("shared")
    return [first, *(first.another() for _ in range(count - 1))]


def wait_for(gate: threading.Event) -> None:
    gate.wait(PATIENCE)


def alive() -> bool:
    return any(thread.name == "core-shared" for thread in threading.enumerate())


def ended() -> bool:
    for thread in threading.enumerate():
        if thread.name == "core-shared":
            thread.join(PATIENCE)
    return not alive()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_each_closes_its_own_and_the_last_ends_the_thread(order: tuple[int, ...]) -> None:
    shares = owners(3)
    done: list[int] = []
    for place, index in enumerate(order):
        assert alive()
        shares[index].close(partial(done.append, index))
        assert done == list(order[: place + 1])  # it was waited for
        shares[index].close(partial(done.append, 99))
        with pytest.raises(ModelClosedError):
            shares[index].run(int)
        with pytest.raises(ModelClosedError):
            shares[index].another()
        assert not shares[index].post(lambda: done.append(98))
        for other in order[place + 1 :]:
            assert shares[other].run(lambda: 7) == 7
    assert ended()
    assert done == list(order)


def test_the_last_job_of_one_runs_behind_what_it_has_queued() -> None:
    one, other = owners(2)
    gate, done = threading.Event(), list[str]()
    one.post(partial(wait_for, gate))
    one.post(lambda: done.append("queued"))
    closing = threading.Thread(target=one.close, args=(lambda: done.append("last"),))
    closing.start()
    other.post(lambda: done.append("the other's"))
    gate.set()
    closing.join(PATIENCE)
    other.close(lambda: done.append("end"))
    assert done.index("queued") < done.index("last")
    assert done[-1] == "end"
    assert ended()


def test_dropped_holds_end_the_thread_without_waiting() -> None:
    one, other = owners(2)
    one.stop()
    one.stop()
    assert other.run(lambda: 7) == 7
    other.stop()
    assert ended()


def test_a_job_may_close_its_own_model() -> None:
    """A finalizer runs wherever the collector does."""
    one, other = owners(2)
    done: list[str] = []
    one.run(lambda: one.close(lambda: done.append("last")))
    other.run(int)
    assert done == ["last"]
    assert other.run(lambda: other.run(lambda: 7)) == 7  # at once, on the thread itself
    other.close(lambda: done.append("end"))
    assert ended()


def test_many_close_at_once() -> None:
    for _ in range(20):
        shares = owners(8)
        done: list[int] = []
        threads = [
            threading.Thread(target=share.close, args=(partial(done.append, index),))
            for index, share in enumerate(shares)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert sorted(done) == list(range(8))
        assert ended()
