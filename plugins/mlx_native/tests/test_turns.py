"""MLX's default device, held per job: with made-up devices, since there is only one here."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import mlx.core as mx
import pytest

import core
from core_mlx_native import loading
from core_mlx_native.backend import Cpu
from core_mlx_native.cpu import lanes
from core_mlx_native.turns import Gate
from core_runtime.owner import OwnerThread

pytestmark = pytest.mark.load  # a busy machine can make it fail

Checkpoint = Callable[..., Path]
USERS, CPU, GPU = "the user's", "cpu", "gpu"
SECONDS = 60  # before a test gives up on threads that should not wait


class Setting:
    """A setting of the process, and its gate."""

    def __init__(self) -> None:
        self.value = USERS
        self.gate = Gate(lambda: self.value, self.write)

    def write(self, value: str) -> None:
        self.value = value


@pytest.fixture
def setting() -> Setting:
    return Setting()


@contextmanager
def owners(setting: Setting, *devices: str) -> Iterator[list[OwnerThread]]:
    """An owner thread for a model on each of these devices."""
    made = [OwnerThread(device, turn=setting.gate.at(device)) for device in devices]
    yield made
    for owner in made:
        owner.close(lambda: None)


def begun(owner: OwnerThread, until: threading.Event) -> Future[None]:
    """A job that has begun, and ends when the event is set."""
    inside = threading.Event()

    def job() -> None:
        inside.set()
        assert until.wait(SECONDS)

    future = owner.submit(job)
    assert inside.wait(SECONDS)
    return future


def waiting(gate: Gate[str], count: int) -> None:
    """Wait until so many jobs wait for the gate."""
    until = time.monotonic() + SECONDS
    while len(gate._waiting) < count and time.monotonic() < until:
        time.sleep(0.001)
    assert len(gate._waiting) == count


def test_every_job_has_its_models_device_and_the_user_has_the_rest(setting: Setting) -> None:
    with owners(setting, CPU, GPU, CPU) as made:
        for _ in range(3):
            assert [owner.run(lambda: setting.value) for owner in made] == [CPU, GPU, CPU]
            assert setting.value == USERS


def test_jobs_on_the_same_device_run_at_the_same_time(setting: Setting) -> None:
    over = threading.Event()
    with owners(setting, GPU, GPU) as (first, second):
        running = begun(first, over)
        assert second.run(lambda: setting.value) == GPU
        assert not running.done()
        assert setting.value == GPU
        over.set()


def test_a_job_on_another_device_waits_and_nobody_passes_it(setting: Setting) -> None:
    over, order = threading.Event(), list[str]()
    with owners(setting, GPU, CPU, GPU, CPU, GPU) as (first, *others):
        running = begun(first, over)
        futures = []
        for count, owner in enumerate(others, start=1):
            futures.append(owner.submit(lambda: order.append(setting.value)))
            waiting(setting.gate, count)
        assert not order
        over.set()
        for future in (running, *futures):
            future.result(SECONDS)
    assert order == [CPU, GPU, CPU, GPU]
    assert setting.value == USERS


def test_what_the_user_sets_while_a_job_runs_stays(setting: Setting) -> None:
    over = threading.Event()
    with owners(setting, GPU, CPU) as (first, second):
        running = begun(first, over)
        setting.value = "set meanwhile"
        behind = second.submit(lambda: setting.value)
        over.set()
        running.result(SECONDS)
        assert behind.result(SECONDS) == CPU
    assert setting.value == "set meanwhile"


def test_an_error_ends_a_turn(setting: Setting) -> None:
    with owners(setting, GPU, CPU) as (first, second):
        with pytest.raises(ZeroDivisionError):
            first.run(lambda: 1 // 0)
        assert second.run(lambda: setting.value) == CPU


def test_a_job_may_wait_for_a_model_on_another_device(setting: Setting) -> None:
    """As an ``is_set`` of a cancel does that calls another model."""

    def outer() -> list[str]:
        found = [setting.value, second.run(lambda: setting.value), setting.value]
        return [*found, second.run(inner), setting.value]

    def inner() -> str:
        return third.run(lambda: first_again())  # the third's job waits for the second's device

    def first_again() -> str:
        return setting.value

    with owners(setting, GPU, CPU, GPU) as (first, second, third):
        assert first.submit(outer).result(SECONDS) == [GPU, CPU, GPU, GPU, GPU]
    assert setting.value == USERS


def test_a_job_may_close_a_model_on_another_device(setting: Setting) -> None:
    """As a finalizer does that the collector runs there."""
    seen = list[str]()
    with owners(setting, GPU, CPU) as (first, second):
        first.submit(lambda: second.close(lambda: seen.append(setting.value))).result(SECONDS)
        assert seen == [CPU]
        assert first.run(lambda: setting.value) == GPU


def test_a_fork_in_a_job_stops_those_that_wait_for_the_device(setting: Setting) -> None:
    """Both owners have to be between two jobs, and one waits for the other's to end."""
    with owners(setting, GPU, CPU) as (first, second):

        def forks() -> str:
            behind = second.submit(lambda: setting.value)
            waiting(setting.gate, 1)
            second.pause()  # what a fork on this thread does
            assert behind.done()
            second.resume()
            return setting.value

        assert first.submit(forks).result(SECONDS) == GPU


def test_many_jobs_on_many_threads_never_see_another_device(setting: Setting) -> None:
    devices = [CPU, GPU, "second gpu"] * 2
    wrong = list[str]()

    def look(device: str, other: OwnerThread, wanted: str) -> None:
        for _ in range(3):
            if setting.value != device:
                wrong.append(setting.value)
        if random.random() < 0.2:
            wrong.extend({other.run(lambda: setting.value)} - {wanted, device})

    with owners(setting, *devices) as made, ThreadPoolExecutor(6) as callers:

        def calls(number: int) -> None:
            after = min(number + 1, 5)  # who waits for whom makes no circle
            for _ in range(60):
                made[number].run(lambda: look(devices[number], made[after], devices[after]))

        list(callers.map(calls, range(6)))
    assert not wrong
    assert setting.value == USERS


def test_models_compute_on_their_device_and_leave_the_users_alone(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loads, calls, lanes and the close of two models; the device is noted where they compute."""
    setting = Setting()
    seen = set[str]()
    cpu: object = mx.Device(mx.cpu)

    class Noted:
        """The gate that a load asks for its turn: here the second model has the other device."""

        devices: Iterator[str] = iter([CPU, GPU])

        def at(self, device: mx.Device) -> object:
            assert device == cpu
            return setting.gate.at(next(self.devices))

    real = lanes.run

    def noted(jobs: list[lanes.Job[object]], check: Callable[[], None]) -> list[object]:
        def job(index: int) -> lanes.Job[object]:
            def run(check: Callable[[], None]) -> object:
                seen.add(setting.value)
                return jobs[index](check)

            return run

        return real([job(index) for index in range(len(jobs))], check)

    monkeypatch.setattr(mx, "is_available", lambda device: True)
    monkeypatch.setattr(loading, "default_device", Noted())
    monkeypatch.setattr(lanes, "run", noted)
    monkeypatch.setattr("core_mlx_native.classify.scheduler.lane_parts", in_two)

    config = core.LoadConfig()
    with Cpu().load_model(checkpoint(name="one"), config) as one:
        with Cpu().load_model(checkpoint(name="two"), config) as two:
            assert setting.value == USERS
            assert [model._owner.run(lambda: setting.value) for model in (one, two)] == [CPU, GPU]

            prompts = ["ab no", "no ab ab", "ab", "no"] * 4
            wanted = [result.label for result in one.classify(prompts, labels=["ab", "no"])]
            with ThreadPoolExecutor(4) as callers:
                models = [one, two] * 4
                found = list(
                    callers.map(lambda model: model.classify(prompts, labels=["ab", "no"]), models)
                )
            assert all([result.label for result in row] == wanted for row in found)
            assert len(list(one.generate("ab", max_tokens=3))) >= 1
        assert setting.value == USERS
    assert setting.value == USERS
    assert seen == {CPU, GPU}


def in_two(own: list[int], most: int) -> list[list[int]]:
    """Lanes, however few tokens there are."""
    half = len(own) // 2
    return [part for part in (list(range(half)), list(range(half, len(own)))) if part]


def test_where_there_is_one_device_nobody_waits_for_it(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mx, "is_available", lambda device: False)
    with Cpu().load_model(checkpoint(), core.LoadConfig()) as model:
        assert isinstance(model._owner._turn, nullcontext)


def test_a_model_is_waited_for_on_its_own_device(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between jobs, the default device may be one that the model has nothing queued on."""
    streams = list[object]()
    with Cpu().load_model(checkpoint(), core.LoadConfig()) as model:
        monkeypatch.setattr(mx, "synchronize", streams.append)
        owner = model._owner
        own = owner.run(lambda: mx.default_stream(mx.cpu))
        owner.pause()
        owner.resume()
        monkeypatch.undo()
    assert streams == [own]
