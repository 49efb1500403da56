"""How many cores are free: what follows from the kernel's counts, and the real kernel's."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from core_runtime.machine import FreeCores, Kernel, KernelCounts

pytestmark = pytest.mark.load  # a busy machine can make it fail

CORES = 4


@dataclass
class Machine:
    """A kernel with four cores, of which this process's threads and others take some."""

    now: float = 100.0
    threads_running: int = 1
    last: KernelCounts = field(default_factory=lambda: KernelCounts(100.0, 0.0, 0.0, {"1": 0.0}))

    def counts(self) -> KernelCounts:
        self.last = replace(self.last, at=self.now)
        return self.last

    def running(self) -> int:
        return self.threads_running

    def go_on(self, own: float, others: float = 0.0, waited: float = 0.0, by: float = 0.2) -> None:
        """Let time pass; the arguments are cores and, for ``waited``, threads without one."""
        last = self.last
        self.now += by
        self.last = KernelCounts(
            self.now,
            last.own + own * by,
            last.idle + (CORES - own - others) * by,
            {"1": last.waited["1"] + waited * by},
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    monkeypatch.setattr(os, "cpu_count", lambda: CORES)
    monkeypatch.setattr("core_runtime.machine.allowed_cpus", lambda: frozenset(range(CORES)))
    return made


def follower(machine: Machine, most: int = CORES) -> FreeCores:
    found = FreeCores(most, machine)  # type: ignore[arg-type]
    found.look()
    return found


@pytest.mark.parametrize(("running", "cores"), [(1, 4), (2, 3), (4, 1), (30, 1)])
def test_the_first_look_sees_who_runs_at_this_moment(
    machine: Machine, running: int, cores: int
) -> None:
    machine.threads_running = running
    assert follower(machine).number == cores


def test_who_ran_for_a_moment_takes_no_core(machine: Machine) -> None:
    machine.threads_running = 3
    free = follower(machine)
    assert free.number == 2
    machine.threads_running = 1
    machine.now += 0.02
    assert free.look() == 4


def test_all_cores_are_kept_while_nobody_else_wants_them(machine: Machine) -> None:
    free = follower(machine)
    for own in (4.0, 3.5, 0.0, 4.0):
        machine.go_on(own=own, waited=0.2)  # threads of one's own get in each other's way, too
        assert free.look() == 4


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_busy_neighbour_takes_a_core(machine: Machine, count: int) -> None:
    free = follower(machine)
    for _ in range(count + 1):
        threads = free.number
        share = min(1.0, CORES / (threads + count))
        machine.go_on(threads * share, others=count * share, waited=threads * (1 - share))
        free.look()
    assert free.number == CORES - count


def test_cores_come_back_when_the_neighbours_have_ended(machine: Machine) -> None:
    free = follower(machine)
    machine.go_on(own=2.7, others=1.3, waited=1.3)
    assert free.look() < 4
    machine.go_on(own=1.0)
    assert free.look() == 4


def test_work_of_this_process_beside_its_products_counts_like_a_neighbours(
    machine: Machine,
) -> None:
    free = follower(machine)
    machine.go_on(own=4.0, waited=1.0)
    assert free.look() == 3


def test_one_core_is_always_there(machine: Machine) -> None:
    free = follower(machine)
    for _ in range(3):
        machine.go_on(own=0.2, others=3.8, waited=3.8)
        free.look()
    assert free.number == 1


def test_the_kernel_is_not_asked_at_every_pass(machine: Machine) -> None:
    free = follower(machine)
    machine.go_on(own=4.0)
    free.look()
    machine.go_on(own=0.1, others=3.9, waited=3.9, by=0.05)
    assert free.look() == 4
    machine.go_on(own=0.1, others=3.9, waited=3.9, by=0.06)
    assert free.look() == 1


def test_counts_from_long_ago_say_nothing_of_now(machine: Machine) -> None:
    free = follower(machine)
    machine.go_on(own=0.0, by=60.0)  # all cores were idle ...
    machine.threads_running = 3  # ... and now two of them are not
    assert free.look() == 2


def test_a_lone_core_needs_no_look(machine: Machine) -> None:
    machine.threads_running = 30
    assert follower(machine, most=1).number == 1
    assert machine.last.at == 100.0


def test_where_the_kernel_does_not_tell_all_cores_count(tmp_path: Path) -> None:
    free = FreeCores(CORES, Kernel(tmp_path))
    assert free.look() == CORES


def test_numbers_of_a_kernel_are_read(tmp_path: Path, machine: Machine) -> None:
    task = tmp_path / "self" / "task" / "7"
    task.mkdir(parents=True)
    (task / "schedstat").write_text("5000000000 1500000000 12\n")
    row = "10 0 10 200 50 0 0 0 0 0"
    rows = "".join(f"cpu{cpu} {row}\n" for cpu in range(CORES))
    (tmp_path / "stat").write_text(f"cpu  40 0 40 800 200 0 0 0 0 0\n{rows}intr 1 2\nctxt 5\n")
    (tmp_path / "loadavg").write_text("0.50 0.40 0.30 3/250 4242\n")
    kernel = Kernel(tmp_path)
    counts = kernel.counts()
    assert counts.idle == CORES * 250 / os.sysconf("SC_CLK_TCK")
    assert counts.waited == {"7": 1.5}
    assert kernel.running() == 3


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute without a pause."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")
def test_beside_real_neighbours_on_every_core_one_is_left() -> None:
    free = FreeCores(os.cpu_count() or 1)
    deadline = time.monotonic() + 60
    with busy(os.cpu_count() or 1):
        while free.look() > 1:
            assert time.monotonic() < deadline, "the neighbours were not seen"
            sum(range(100_000))  # a thread that wants a core
