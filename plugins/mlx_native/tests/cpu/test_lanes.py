"""Lanes: passes side by side, with one core and one BLAS thread each."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import core
from core.kit.base import Check
from core_mlx_native.backend import Cpu
from core_mlx_native.classify import scheduler
from core_mlx_native.cpu import blas_threads, lanes, numpy_ops
from core_mlx_native.cpu.blas_threads import (
    ThreadCount,
    follow_load,
    free_of,
    one_thread_each,
    product_threads,
)
from core_mlx_native.cpu.lanes import in_lane
from core_mlx_native.network import prefill
from core_runtime.machine import FreeCores
from core_runtime.threads import begin


def nothing() -> None:
    """A check that finds nothing."""


class Counted:
    """A BLAS's number of threads."""

    def __init__(self, number: int) -> None:
        self.number = number

    def get(self) -> int:
        return self.number

    def set(self, number: int) -> None:
        self.number = number


@pytest.fixture
def blas(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted(4)
    monkeypatch.setattr(blas_threads, "_followed", None)
    monkeypatch.setattr(blas_threads, "_threads", lambda: ThreadCount(counted.get, counted.set))
    return counted


def test_products_take_one_thread_until_the_last_one_is_out(blas: Counted) -> None:
    first, second = one_thread_each(), one_thread_each()
    with first:
        second.__enter__()
        assert blas.number == 1
        assert product_threads() == 4  # what it will be again
    assert blas.number == 1
    second.__exit__(None, None, None)
    assert blas.number == product_threads() == 4


def test_the_number_comes_back_behind_an_error(blas: Counted) -> None:
    with pytest.raises(ZeroDivisionError), one_thread_each():
        raise ZeroDivisionError
    assert blas.number == 4


def test_a_library_that_cannot_be_told_has_one_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas_threads, "_threads", lambda: None)
    with one_thread_each():
        assert product_threads() == 1
    assert lanes.usable_lanes() == 1


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """How many cores are free; the environment asks for no number."""
    cores = Counted(4)

    class Followed(FreeCores):
        def look(self) -> int:
            self.number = min(self.most, cores.number)
            return self.number

    monkeypatch.setattr(blas_threads, "FreeCores", Followed)
    monkeypatch.setattr(blas_threads, "usable_cores", lambda: 4)
    for name in blas_threads.NUMBERS:
        monkeypatch.delenv(name, raising=False)
    return cores


def test_products_take_as_many_threads_as_there_are_free_cores(
    blas: Counted, free: Counted
) -> None:
    for cores in (4, 1, 2, 4):
        free.set(cores)
        follow_load()
        assert blas.number == free_of(4) == cores
        assert product_threads() == 4  # the most, which lanes are made for
    assert free_of(2) == 2


def test_lanes_have_their_one_thread_whatever_is_free(blas: Counted, free: Counted) -> None:
    with one_thread_each():
        follow_load()
        assert blas.number == 1
    assert blas.number == 4


@pytest.mark.parametrize("name", blas_threads.NUMBERS)
def test_a_number_that_the_environment_asks_for_stays(
    blas: Counted, free: Counted, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "4")
    free.set(1)
    follow_load()
    assert blas.number == free_of(4) == 4


def test_a_number_that_the_program_sets_is_the_most(blas: Counted, free: Counted) -> None:
    follow_load()
    blas.set(2)
    follow_load()
    assert blas.number == product_threads() == 2
    free.set(1)
    follow_load()
    assert blas.number == 1


def test_a_container_with_few_cores_has_few_threads(
    blas: Counted, free: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blas_threads, "usable_cores", lambda: 2)  # of the four that OpenBLAS sees
    follow_load()
    assert blas.number == 2


def test_every_pass_follows_the_load(
    checkpoint: Callable[..., Path], blas: Counted, free: Counted
) -> None:
    free.set(1)
    with loaded(checkpoint()) as model:
        assert isinstance(model, core.Scoring)
        for call in (
            lambda: model.classify(["ab c"]),
            lambda: list(model.generate("ab c", max_tokens=2)),
            lambda: model.score(["ab"], [" c"]),
        ):
            blas.set(4)
            call()
            assert blas.number == 1


def test_the_real_library_obeys() -> None:
    threads = blas_threads._threads()
    assert threads is not None, "scipy-openblas32 is in front of MLX in these tests"
    before = threads.get()
    with one_thread_each():
        assert threads.get() == 1
    assert threads.get() == before


def test_each_job_runs_on_a_thread_of_its_own_with_the_first_here() -> None:
    meeting = threading.Barrier(2, timeout=120)

    def job(check: Check) -> tuple[int, bool]:
        meeting.wait()  # they run at the same time
        check()
        return threading.get_ident(), in_lane()

    found = lanes.run([job, job], nothing)
    assert found[0] == (threading.get_ident(), True)
    assert found[1][0] != found[0][0]
    assert found[1][1]
    assert not in_lane()


def test_arrays_of_another_lane_are_read_here() -> None:
    def job(check: Check) -> mx.array:
        found = mx.arange(5) * 2
        mx.eval(found)
        return found

    with mx.stream(mx.cpu):
        both = lanes.run([job, job], nothing)
        assert mx.concatenate(both).tolist() == [0, 2, 4, 6, 8] * 2


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_ends_the_other_lane_and_is_raised_as_it_is(failing: int) -> None:
    ended = []

    def fail(check: Check) -> None:
        raise ValueError("this lane")

    def go_on(check: Check) -> None:
        try:
            while True:
                check()
        finally:
            ended.append(True)

    jobs: list[Callable[[Check], None]] = [go_on, go_on]
    jobs[failing] = fail
    with pytest.raises(ValueError, match="this lane"):
        lanes.run(jobs, nothing)
    assert ended == [True]
    assert not in_lane()


def test_the_check_is_called_on_this_thread_alone_and_ends_all() -> None:
    """A cancel's ``is_set()`` may be anybody's code, which must not run on a helper."""
    callers = set()
    looks = 0

    def check() -> None:
        nonlocal looks
        callers.add(threading.get_ident())
        looks += 1
        if looks == 100:
            raise core.GenerationCancelled

    def go_on(check: Check) -> None:
        while True:
            check()

    with pytest.raises(core.GenerationCancelled):
        lanes.run([go_on, go_on], check)
    assert callers == {threading.get_ident()}


def test_a_lane_that_waits_for_others_looks_on() -> None:
    waiting = threading.Event()
    looks = 0

    def check() -> None:
        nonlocal looks
        looks += 1
        if waiting.is_set():
            raise core.GenerationTimeout(1.0)

    def go_on(check: Check) -> None:
        while True:
            check()

    def end(check: Check) -> None:
        waiting.set()

    with pytest.raises(core.GenerationTimeout):
        lanes.run([end, go_on], check)
    assert looks == 1


def test_a_lane_within_a_lane_leaves_it_one() -> None:
    """A cancel's ``is_set()`` that classifies."""
    inner: list[Any] = [lambda check: in_lane()]
    assert lanes.run([lambda check: (lanes.run(inner, nothing), in_lane())], nothing) == [
        ([True], True)
    ]


def test_host_arithmetic_stays_on_its_core_in_a_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    helped = []
    real = begin

    def watched(*args: Any) -> Any:
        helped.append(True)
        return real(*args)

    monkeypatch.setattr("core_mlx_native.cpu.numpy_ops.begin", watched)
    monkeypatch.setattr(numpy_ops, "_cores", lambda: 2)
    monkeypatch.setattr(numpy_ops, "free_of", lambda cores: cores)  # whatever else runs here
    gate = np.ones((1024, 256), np.float32)

    def job(check: Check) -> float:
        return float(numpy_ops.gated_silu(mx.array(gate), mx.array(gate)).sum())

    alone = job(nothing)
    assert helped
    helped.clear()
    assert lanes.run([job, job], nothing) == [alone, alone]
    assert not helped


# ------------------------------------------------------------------------------- classification


PROMPTS = ["ab c" * (1 + i % 5) + "ab"[i % 2] for i in range(40)]


@pytest.fixture
def lane_threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The threads on which lanes run, for micro-batches of any size."""
    names: set[str] = set()
    real = prefill.read

    def watched(*args: Any, **options: Any) -> Any:
        names.add(threading.current_thread().name)
        return real(*args, **options)

    monkeypatch.setattr(scheduler, "read", watched)
    monkeypatch.setattr(scheduler, "_WORTH", 1)
    monkeypatch.setattr("core_mlx_native.loaded.usable_lanes", lambda: 2)
    return names


def loaded(directory: Path, **options: Any) -> core.TextModel:
    return Cpu().load_model(directory, core.LoadConfig(options={"token_budget": 64, **options}))


def test_results_are_those_of_one_pass_on_all_cores(
    checkpoint: Callable[..., Path], lane_threads: set[str]
) -> None:
    labels = ["a", "b", "ab c"]
    directory = checkpoint()
    with loaded(directory, without=["lanes"]) as model:
        wanted = model.classify(PROMPTS, labels=labels)
        assert len(lane_threads) == 1
    lane_threads.clear()
    with loaded(directory) as model:
        results = model.classify(PROMPTS, labels=labels)
        only = model.classify(PROMPTS, labels=labels, labels_only=True)
        assert len(lane_threads) == 2
    for found, bare, other in zip(results, only, wanted, strict=True):
        assert found.token == other.token
        assert found.label == bare.label == other.label
        assert found.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert (bare.probabilities, bare.margin) == (None, None)  # "ab c" has two tokens


def test_a_lane_that_runs_out_of_memory_splits_the_micro_batch(
    checkpoint: Callable[..., Path], lane_threads: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with loaded(checkpoint()) as model:
        wanted = model.classify(PROMPTS)
        real = prefill.read

        def scarce(decoder: Any, prompts: list[list[int]], *rest: Any, **options: Any) -> Any:
            if threading.current_thread().name.startswith("core-lane") and len(prompts) > 1:
                raise RuntimeError("[malloc] Unable to allocate 1 bytes")
            return real(decoder, prompts, *rest, **options)

        monkeypatch.setattr(scheduler, "read", scarce)
        results = model.classify(PROMPTS)
    assert [result.token for result in results] == [result.token for result in wanted]
    assert len(lane_threads) == 2


@pytest.mark.parametrize(
    ("own", "parts"),
    [
        ([100] * 4, [[0, 1], [2, 3]]),
        ([300, 100, 100, 100], [[0], [1, 2, 3]]),
        ([100] * 3, [[0, 1, 2]]),  # a lane would have twice the other's
        ([1000], [[0]]),
        ([1000, 10], [[0], [1]]),  # in one pass the short row would be padded
        ([10] * 4, [[0, 1, 2, 3]]),  # too few tokens
    ],
)
def test_lanes_are_even_or_not_taken(own: list[int], parts: list[list[int]]) -> None:
    assert scheduler.lane_parts(own, 2) == parts
    assert scheduler.lane_parts(own, 1) == [list(range(len(own)))]


def test_a_real_model_takes_its_lanes(smollm2_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    real = lanes.run

    def watched(jobs: Any, check: Check) -> Any:
        counts.append(len(jobs))
        return real(jobs, check)

    monkeypatch.setattr(lanes, "run", watched)
    monkeypatch.setattr("core_mlx_native.loaded.usable_lanes", lambda: 2)
    file = Path(__file__).parents[4] / "examples" / "headlines.jsonl"
    texts = [json.loads(line)["text"] for line in file.read_text().splitlines()][:12]
    with loaded(smollm2_dir, token_budget=512) as model:
        results = model.classify([f"{text} This is about" for text in texts], labels=["a", "b"])
    assert all(result.error is None for result in results)
    assert set(counts) == {2}
