"""What readers, callers and closing threads do wrong to a model: nobody hangs, no row is lost.

Every wait of these tests has an end, so that what would hang fails instead.
"""

from __future__ import annotations

import faulthandler
import gc
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import mlx.core as mx
import pytest

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.model import MlxModel
from core_runtime.owner import OwnerThread
from core_runtime.request import Request

pytestmark = pytest.mark.load  # a busy machine can make it fail

T = TypeVar("T")
Checkpoint = Callable[..., Path]
Load = Callable[..., MlxModel]
PROMPT = "ab ab no"
ENDLESS = core.GenerateConfig(max_tokens=10**9)
SHORT = core.GenerateConfig(max_tokens=5)
PATIENCE = 300.0  # seconds after which something hangs


@pytest.fixture
def load(checkpoint: Checkpoint) -> Iterator[Load]:
    """Models whose generations go on until something ends them."""
    directory = checkpoint("llama")
    (directory / "tokenizer_config.json").unlink()  # which names the EOS
    models: list[MlxModel] = []

    def made(**options: Any) -> MlxModel:
        config = core.LoadConfig(**{"context_len": 32, "context_overflow": "rotate", **options})
        models.append(Cpu().load_model(directory, config))
        return models[-1]

    yield made
    for model in models:
        within(model.close)


def within(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises; a failure, with all stacks, if it does not end."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    joined(thread)
    if errors:
        raise errors[0]
    return results[0]


def joined(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(PATIENCE)
        if thread.is_alive():
            faulthandler.dump_traceback(sys.__stderr__ or 2)
            pytest.fail(f"{thread.name} hangs")


def started(*works: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads


def eventually(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def ids(stream: core.TokenStream) -> list[int]:
    return [token.id for token in stream]


def answer(model: MlxModel) -> list[int]:
    """What a request gets; a failure when no slot becomes free for it."""
    return within(lambda: ids(model.submit(PROMPT, SHORT)))


def unlike(count: int) -> list[str]:
    """Prompts that each run for themselves."""
    return [f"{PROMPT} {number}" for number in range(count)]


def active() -> int:
    gc.collect()
    return mx.get_active_memory()


class Cancel:
    """A cancel whose ``is_set`` does what it is told, on the model's own thread."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action
        self.asked = threading.Event()

    def is_set(self) -> bool:
        self.asked.set()
        self.action()
        return False


# ---------------------------------------------------------------- readers


def test_a_stream_that_nobody_reads_holds_up_nobody(load: Load) -> None:
    model = load(parallel_slots=2)
    expected = answer(model)
    unread = model.submit(PROMPT, ENDLESS)
    for _ in range(20):
        assert answer(model) == expected
    assert unread.finish_reason is None
    assert [token.id for token, _ in zip(unread, range(5), strict=False)] == expected


def test_device_memory_of_an_unread_stream_is_bounded(load: Load) -> None:
    model = load(parallel_slots=1)
    before = active()
    unread = model.submit(PROMPT, ENDLESS)
    request = unread._request
    assert request is not None
    peaks = []
    for _ in range(3):  # each over as many steps, whenever this thread gets to run
        mx.reset_peak_memory()
        eventually(partial(lambda least: request.drawn >= least, request.drawn + 500))
        peaks.append(mx.get_peak_memory())
    # One step more or less may be in flight at a peak; a step that left even its logits behind
    # (4 bytes for each of a few hundred tokens) would show as more than this.
    assert peaks[2] - peaks[0] < 1000 * 100  # bytes, over the 1,000 steps between the two
    within(model.close)
    assert mx.get_active_memory() < before  # weights too, while the stream is still held
    with pytest.raises(core.ModelClosedError):
        within(lambda: ids(unread))


def test_an_unread_stream_frees_its_row_at_its_end(load: Load) -> None:
    model = load(parallel_slots=1, context_overflow="stop")
    before = active()
    unread = model.submit(PROMPT, ENDLESS)
    answer(model)  # served behind it, in the only slot
    eventually(lambda: model._engine.idle)
    assert within(lambda: len(ids(unread))) == 32 - len(model.encode(PROMPT))
    assert active() == before


def test_a_reader_that_raises_leaves_no_row(load: Load) -> None:
    model = load(parallel_slots=1)
    before = active()

    def read() -> None:
        for _ in model.generate(PROMPT, ENDLESS):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        within(read)
    del raised
    gc.collect()
    assert len(answer(model)) == 5
    eventually(lambda: model._engine.idle)
    eventually(lambda: active() == before)


@pytest.mark.parametrize("reads", [0, 3])
def test_a_thread_that_dies_with_an_open_stream_leaves_no_row(
    load: Load, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # pytest's keeps the frames
    model = load(parallel_slots=1)

    def read() -> None:
        stream = model.submit(PROMPT, ENDLESS)
        for _ in range(reads):
            next(stream)
        raise ZeroDivisionError

    joined(*started(read))
    assert len(answer(model)) == 5


def test_another_thread_closes_the_stream_that_one_waits_for(load: Load) -> None:
    model = load(parallel_slots=1)
    outcomes: list[object] = []

    def read(stream: core.TokenStream) -> None:
        try:
            outcomes.append(len(ids(stream)) >= 0)
        except core.CoreError as error:
            outcomes.append(error)

    blocker = model.submit(PROMPT, ENDLESS)
    for waits in (True, False) * 20:
        stream = model.submit(PROMPT, ENDLESS) if waits else model.generate(PROMPT, ENDLESS)
        reader = started(partial(read, stream))
        within(stream.close)
        joined(*reader)
        assert stream.finish_reason == "cancelled"
    within(blocker.close)
    for _ in range(20):  # and one that is being served
        stream = model.submit(PROMPT, ENDLESS)
        next(stream)
        go = threading.Event()
        held = started(partial(model._owner.run, partial(go.wait, PATIENCE)))
        threads = started(partial(read, stream))
        time.sleep(0.01)  # the reader waits by now, or else this round shows less
        threads += started(stream.close, stream.close)
        time.sleep(0.01)
        go.set()
        joined(*held, *threads)
        assert stream.finish_reason == "cancelled"
    assert outcomes == [True] * 60
    assert len(answer(model)) == 5


# ---------------------------------------------------------------- closing the model


def test_closing_ends_every_request_of_every_thread(load: Load) -> None:
    model = load(parallel_slots=3)
    never_read = [model.submit(PROMPT, ENDLESS) for _ in range(4)]
    outcomes: list[object] = []

    def batch() -> None:
        outcomes.extend(type(row.error) for row in model.batch_generate(unlike(5), ENDLESS))

    def raising(work: Callable[[], object]) -> None:
        try:
            outcomes.append(work())
        except core.CoreError as error:
            outcomes.append(type(error))

    works: list[Callable[[], object]] = [
        batch,
        *[partial(raising, lambda: ids(model.submit(PROMPT, ENDLESS))) for _ in range(4)],
        *[partial(raising, lambda: ids(model.generate(PROMPT, ENDLESS))) for _ in range(4)],
        *[partial(raising, lambda: list(model.batch_stream(unlike(5), ENDLESS)))] * 2,
        partial(raising, lambda: [model.classify(["ab"] * 9) for _ in range(10**6)]),
        partial(raising, lambda: [model.score(["ab"], ["no"]) for _ in range(10**6)]),
    ]
    threads = started(*works)
    eventually(lambda: len(model._engine._waiting) >= 4 + 5 + 4 + 4 + 10 - 3)
    within(model.close)
    joined(*threads)
    assert Counter(outcomes) == {core.ModelClosedError: 5 + 4 + 4 + 2 + 2}
    for stream in never_read:
        with pytest.raises(core.ModelClosedError):
            within(partial(ids, stream))
        within(stream.close)


def test_submitting_while_the_model_closes(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: Counter[int] = Counter()
    made: list[Request] = []
    start = Request.__init__

    def init(self: Request, model: Any, prompt: Any, config: Any, sink: Any, *more: Any) -> None:
        def counted(item: Any) -> None:
            ends[id(self)] += not isinstance(item, list)
            sink(item)

        made.append(self)
        start(self, model, prompt, config, counted, *more)

    monkeypatch.setattr(Request, "__init__", init)
    for _ in range(50):
        race_with_close(load(parallel_slots=4))
        assert all(ends[id(request)] <= 1 for request in made)
        made.clear()
        ends.clear()


def test_a_model_that_closes_just_before_the_request_arrives(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [load(), load()]
    streams = [models[0].generate(PROMPT, SHORT)]
    real = Request.__init__

    def init(self: Request, *arguments: Any) -> None:
        real(self, *arguments)
        for model in models:
            within(model.close)

    monkeypatch.setattr(Request, "__init__", init)
    with pytest.raises(core.ModelClosedError):
        within(lambda: ids(streams[0]))
    models[1] = load()
    with pytest.raises(core.ModelClosedError):
        within(lambda: models[1].batch_generate([PROMPT], SHORT))


def race_with_close(model: MlxModel) -> None:
    """Twenty threads submit while one closes: each stream ends once, in one of two ways."""
    barrier = threading.Barrier(21)
    outcomes: list[str] = []

    def work() -> None:
        barrier.wait(PATIENCE)
        try:
            stream = model.submit(PROMPT, SHORT)
            tokens = ids(stream)
            outcomes.append(f"{len(tokens)} {stream.finish_reason}")
            assert ids(stream) == []
        except core.ModelClosedError:
            outcomes.append("closed")

    threads = started(*[work] * 20)
    barrier.wait(PATIENCE)
    within(model.close)
    joined(*threads)
    assert len(outcomes) == 20
    assert set(outcomes) <= {"closed", "5 length"}


def test_closing_from_several_threads(load: Load) -> None:
    model = load()
    stream = model.submit(PROMPT, ENDLESS)
    joined(*started(*[model.close] * 5))
    with pytest.raises(core.ModelClosedError):
        within(lambda: ids(stream))


# ---------------------------------------------------------------- a cancel that misbehaves


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_a_cancel_that_raises_is_one_requests_affair(
    load: Load, error: type[BaseException], waits: bool
) -> None:
    model = load(parallel_slots=1 if waits else 3)
    expected = answer(model)

    def fail() -> None:
        raise error("is_set")

    neighbour = model.submit(PROMPT, ENDLESS)
    next(neighbour)
    broken = model.submit(PROMPT, core.GenerateConfig(max_tokens=10**9, cancel=Cancel(fail)))
    with pytest.raises(error if issubclass(error, Exception) else RuntimeError, match="is_set"):
        within(lambda: ids(broken))
    assert broken.finish_reason == "error"
    next(neighbour)
    within(neighbour.close)
    assert answer(model) == expected


def test_a_cancel_may_wait_for_a_thread_that_submits(load: Load) -> None:
    model = load(parallel_slots=1)

    def locked(lock: threading.Lock) -> None:
        assert lock.acquire(timeout=PATIENCE)
        lock.release()

    blocker = model.submit(PROMPT, ENDLESS)
    next(blocker)
    for _ in range(3):
        lock = threading.Lock()  # of this round: the engine may still ask the last one's cancel
        cancel = Cancel(partial(locked, lock))
        with lock:
            waiting = model.submit(PROMPT, core.GenerateConfig(max_tokens=1, cancel=cancel))
            assert cancel.asked.wait(PATIENCE)
            within(lambda: model.submit(PROMPT, SHORT)).close()
        within(waiting.close)
    assert next(blocker).id >= 0


def test_calls_on_the_models_own_thread_do_not_wait_for_it(load: Load) -> None:
    model = load(parallel_slots=4)
    other = model.submit(PROMPT, ENDLESS)
    seen: list[object] = []

    def call() -> None:
        seen.append(model.classify(["ab"])[0].error)
        seen.append(model.memory().active_bytes > 0)
        with pytest.raises(core.ModelBusyError):
            ids(other)
        with pytest.raises(core.ModelBusyError):
            model.batch_generate([PROMPT], SHORT)
        other.close()
        seen.append(other.finish_reason)
        raise ZeroDivisionError

    stream = model.submit(PROMPT, core.GenerateConfig(cancel=Cancel(call)))
    with pytest.raises(ZeroDivisionError):
        within(lambda: ids(stream))
    assert seen == [None, True, "cancelled"]
    assert len(answer(model)) == 5


def test_a_finalizer_on_the_models_own_thread_may_close_the_model(load: Load) -> None:
    model = load()
    streams = [model.submit(PROMPT, ENDLESS) for _ in range(3)]
    streams.append(model.submit(PROMPT, core.GenerateConfig(cancel=Cancel(model.close))))
    for stream in streams:
        with pytest.raises(core.ModelClosedError):
            within(partial(ids, stream))
    joined(model._owner._thread)
    within(model.close)


def test_a_dropped_models_finalizer_may_run_where_the_lock_is_held() -> None:
    owner = OwnerThread("test", partial(mx.stream, mx.Device(mx.cpu)), mx.synchronize)

    def collect() -> None:
        with owner._lock:  # as the collector does, when it runs inside of post()
            owner.stop()
            assert not owner.post(lambda: None)

    within(collect)
    joined(owner._thread)


def test_a_job_that_was_withdrawn_is_not_held() -> None:
    owner = OwnerThread("test", partial(mx.stream, mx.Device(mx.cpu)), mx.synchronize)
    withdrawn: Future[None] = Future()
    withdrawn.cancel()
    job: Callable[[], None] = partial(pytest.fail, "it runs")
    gone = weakref.ref(job)
    owner._jobs.put((withdrawn, job))
    del job
    eventually(lambda: gone() is None)  # else a dropped model's thread would hold the model
    owner.close(lambda: None)


def test_a_request_ends_once_whoever_ends_it(load: Load) -> None:
    sent: list[object] = []
    request = Request(load()._loaded, [3, 4], SHORT, sent.append)
    joined(*started(*[request.abandon] * 5))
    request.end("length")  # the owner thread, at the same time
    request.fail(core.ModelClosedError())
    assert len(sent) == 1


# ---------------------------------------------------------------- the waiting line


@pytest.fixture
def held_up(load: Load) -> Iterator[tuple[MlxModel, threading.Event]]:
    """A model whose thread does nothing until the event is set."""
    model, go = load(parallel_slots=2), threading.Event()
    thread = started(lambda: model._owner.run(lambda: go.wait(PATIENCE)))
    yield model, go
    go.set()
    joined(*thread)


def test_thousands_that_wait_are_closed_without_waiting_for_the_engine(
    held_up: tuple[MlxModel, threading.Event],
) -> None:
    model, go = held_up
    streams = [model.submit(PROMPT, ENDLESS) for _ in range(5000)]

    def close() -> None:
        for stream in streams:
            stream.close()

    within(close)
    assert {stream.finish_reason for stream in streams} == {"cancelled"}
    go.set()
    assert len(answer(model)) == 5
    assert len(model._engine._waiting) == 0


def test_thousands_that_are_cancelled_while_they_wait_are_not_begun(
    held_up: tuple[MlxModel, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, go = held_up
    begun: list[Request] = []
    monkeypatch.setattr(Request, "begin", begun.append)
    cancel = threading.Event()
    config = core.GenerateConfig(max_tokens=10**9, cancel=cancel)
    outcomes: list[core.BatchResult] = []
    thread = started(lambda: outcomes.extend(model.batch_generate(unlike(5000), config)))
    eventually(lambda: len(model._engine._waiting) == 5000)
    cancel.set()
    go.set()
    joined(*thread)
    assert {row.finish_reason for row in outcomes} == {"cancelled"}
    assert {type(row.error) for row in outcomes} == {core.GenerationCancelled}
    assert begun == []


def test_a_timeout_runs_while_the_request_waits(load: Load) -> None:
    model = load(parallel_slots=1)
    blocker = model.submit(PROMPT, ENDLESS)
    next(blocker)
    config = core.GenerateConfig(max_tokens=3, timeout=0.05)
    waiting = model.submit(PROMPT, config)
    with pytest.raises(core.GenerationTimeout):
        within(lambda: next(waiting))
    rows = within(lambda: model.batch_generate(unlike(3), config))
    assert {type(row.error) for row in rows} == {core.GenerationTimeout}
    assert next(blocker).id >= 0
    within(blocker.close)
    assert len(answer(model)) == 5


def test_classify_and_score_between_the_steps_of_streams(load: Load) -> None:
    model = load(parallel_slots=3)
    prompts, tails = ["ab no", "no", "ab ab ab no ab"], [" ab", " no", " abc"]
    labels = ["ab", "no", "abc no"]
    classified = model.classify(prompts, labels=labels)
    scored = model.score(prompts, tails)
    config = core.GenerateConfig(max_tokens=100)
    expected = ids(model.generate(PROMPT, config))
    found: list[list[int]] = []
    enough = threading.Event()

    def read() -> None:
        while not enough.is_set():
            found.append(ids(model.generate(PROMPT, config)))

    readers = started(*[read] * 3)
    for _ in range(20):
        for result, alone in zip(model.classify(prompts, labels=labels), classified, strict=True):
            assert result.label == alone.label
            assert result.probabilities == pytest.approx(alone.probabilities, abs=1e-4)
        assert [s.logprob for s in model.score(prompts, tails)] == pytest.approx(
            [s.logprob for s in scored], abs=1e-4
        )
    enough.set()
    joined(*readers)
    assert len(found) >= 3
    assert found == [expected] * len(found)
