"""Two hundred threads that submit, read, close, drop and cancel at random, with a fixed seed.

Each request ends exactly once, and nothing is left: no memory, no thread, no request.
"""

from __future__ import annotations

import faulthandler
import gc
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.model import MlxModel
from core_runtime.request import Item, Request, RequestEnd

pytestmark = pytest.mark.load  # a busy machine can make it fail

Checkpoint = Callable[..., Path]
Act = Callable[[MlxModel, random.Random], None]
THREADS = 200
KEPT = 1 << 18  # bytes of beginnings between calls: few of these prompts', so that some must go
PATIENCE = 300.0  # seconds after the last submission: then something hangs
WORDS = ["ab", "no", "b", "abc", "xy", "z"]


class Ends:
    """Counts the ends of every request that is made while it stands."""

    def __init__(self) -> None:
        self.found: Counter[int] = Counter()
        self.reasons: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._made = 0

    def number(self) -> int:
        with self._lock:
            self._made += 1
            self.found[self._made] = 0
            return self._made

    def count(self, number: int, end: RequestEnd) -> None:
        with self._lock:
            self.found[number] += 1
            self.reasons[end.reason] += 1


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    counted = Ends()
    real = Request.__init__

    def init(self: Request, model: Any, ids: Any, config: Any, sink: Any, *more: Any) -> None:
        number = counted.number()

        def send(item: Item) -> None:
            if isinstance(item, RequestEnd):
                counted.count(number, item)
            sink(item)

        real(self, model, ids, config, send, *more)

    monkeypatch.setattr(Request, "__init__", init)
    return counted


@pytest.fixture
def model(checkpoint: Checkpoint) -> Iterator[MlxModel]:
    """Few slots, small chunks, sliding windows, and texts that mostly end at ``max_tokens``."""
    directory = checkpoint("gemma3", max_position_embeddings=256)
    options = {"prefill_chunk": 16, "token_budget": 64, "prefix_cache": KEPT}
    loaded = Cpu().load_model(directory, core.LoadConfig(parallel_slots=6, options=options))
    yield loaded
    loaded.close()


def prompt(random: random.Random) -> str:
    return " ".join(random.choices(WORDS, k=random.randint(1, 40)))


def config(random: random.Random, **options: Any) -> core.GenerateConfig:
    """Every kind of request side by side."""
    return core.GenerateConfig(
        max_tokens=random.randint(1, 12),
        temperature=random.choice([0.0, 1.0]),
        top_k=random.choice([0, 3]),
        repeat_penalty=random.choice([1.0, 1.3]),
        stop=random.choice([(), ("ab",)]),
        return_logprobs=random.random() < 0.5,
        seed=random.choice([None, 1]),
        **options,
    )


def read_all(model: MlxModel, random: random.Random) -> None:
    stream = model.generate(prompt(random), config(random))
    tokens = list(stream)
    assert stream.metrics.generated_tokens == len(tokens)
    assert stream.finish_reason in ("stop", "length")


def close_early(model: MlxModel, random: random.Random) -> None:
    stream = model.submit(prompt(random), config(random))
    for _, _ in zip(range(random.randint(0, 4)), stream, strict=False):
        pass
    stream.close()
    assert list(stream) == []


def drop(model: MlxModel, random: random.Random) -> None:
    stream = model.submit(prompt(random), config(random))
    if random.random() < 0.5:
        next(stream, None)


def cancel(model: MlxModel, random: random.Random) -> None:
    event = threading.Event()
    stream = model.submit(prompt(random), config(random, cancel=event))
    if random.random() < 0.5:
        next(stream, None)
    event.set()
    try:
        list(stream)
    except core.GenerationCancelled:
        assert stream.finish_reason == "cancelled"


def time_out(model: MlxModel, random: random.Random) -> None:
    stream = model.submit(prompt(random), config(random, timeout=random.choice([1e-9, 0.01])))
    try:
        list(stream)
    except core.GenerationTimeout:
        assert stream.finish_reason == "error"


def close_while_read(model: MlxModel, random: random.Random) -> None:
    stream = model.submit(prompt(random), config(random))
    closer = threading.Thread(target=stream.close)
    closer.start()
    list(stream)
    closer.join(PATIENCE)
    assert not closer.is_alive()


def batch(model: MlxModel, random: random.Random) -> None:
    prompts = [prompt(random) for _ in range(random.randint(0, 5))] + [""]
    rows = model.batch_generate(prompts, config(random))
    assert [row.error is None for row in rows] == [True] * (len(rows) - 1) + [False]


def leave_batch(model: MlxModel, random: random.Random) -> None:
    rows = model.batch_stream([prompt(random) for _ in range(3)], config(random))
    next(rows, None)
    rows.close()  # type: ignore[attr-defined]


def raising(model: MlxModel, random: random.Random) -> None:
    try:
        for _ in model.generate(prompt(random), config(random)):
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass


def read_otherwise(model: MlxModel, random: random.Random) -> None:
    assert model.classify([prompt(random)], labels=["ab", "no"])[0].error is None
    assert model.score([prompt(random)], [" ab"])[0].error is None


ACTS: list[Act] = [
    read_all, close_early, drop, cancel, time_out,
    close_while_read, batch, leave_batch, raising, read_otherwise,
]  # fmt: skip


def soak(model: MlxModel, done: Callable[[int], bool]) -> Counter[str]:
    """All threads act until ``done(rounds)``; how often each thing was done."""
    acts: Counter[str] = Counter()
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        random_ = random.Random(seed)
        rounds = 0
        while not done(rounds) and not errors:
            act = random_.choice(ACTS)
            try:
                act(model, random_)
            except BaseException as error:  # noqa: BLE001 - shown below
                errors.append(error)
            acts[act.__name__] += 1
            rounds += 1

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        if thread.is_alive():
            faulthandler.dump_traceback(sys.__stderr__ or 2)
            pytest.fail(f"{thread.name} hangs")
    if errors:
        raise errors[0]
    return acts


def settled(model: MlxModel) -> int:
    """Active memory when the engine is idle, nothing is left to collect, and nothing is kept."""
    deadline = time.monotonic() + PATIENCE
    gc.collect()
    while not model._engine.idle:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    kept = model._loaded.prefixes
    assert 0 < kept.used <= KEPT
    model._owner.run(kept.clear)  # behind the last step
    gc.collect()
    return mx.get_active_memory()


def left_over() -> int:
    return sum(isinstance(thing, Request) for thing in gc.get_objects())


def assert_all_is_as_before(model: MlxModel, ends: Ends, done: Callable[[int], bool]) -> None:
    read_all(model, random.Random(0))
    memory, threads, requests = settled(model), threading.active_count(), left_over()
    acts = soak(model, done)
    assert settled(model) == pytest.approx(memory, rel=0.01)
    assert threading.active_count() == threads
    assert left_over() <= requests
    assert Counter(ends.found.values()) == {1: len(ends.found)}
    assert set(acts) == {act.__name__ for act in ACTS}
    assert set(ends.reasons) == {"stop", "length", "cancelled", "error"}


@pytest.mark.slow
def test_a_few_rounds(model: MlxModel, ends: Ends) -> None:
    assert_all_is_as_before(model, ends, lambda rounds: rounds == 3)


@pytest.mark.long
def test_a_minute(model: MlxModel, ends: Ends) -> None:
    deadline = time.monotonic() + 60
    assert_all_is_as_before(model, ends, lambda _: time.monotonic() > deadline)
    assert len(ends.found) > THREADS
