"""A GPU works while Python reads the micro-batch before: reading it may queue nothing."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import core
from core.kit.base import never_stop
from core.options import GenerateConfig
from core_mlx_native import to_python
from core_mlx_native.backend import Cpu
from core_mlx_native.classify import labels, microbatch
from core_mlx_native.classify.microbatch import ClassifyTask
from core_mlx_native.classify.prefixes import Prefixes
from core_mlx_native.classify.scheduler import MicroBatch, Ran, Scheduler
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.loaded import load
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.ops import Ops
from core_mlx_native.network.prefill import NO_PREFIX, Prefix, read
from core_mlx_native.sampling import sampling
from core_runtime import classifying
from core_runtime.owner import OwnerThread
from core_runtime.rows import PromptRow, classify_rows


class Pass:
    """What a forward pass has computed."""


EACH_ROW = core.LoadConfig(options={"without": ["equal_rows"]})
PROMPTS = ["ab c", "b", "abc abc"]
ASKED: list[dict[str, Any]] = [
    {},
    {"labels": ("a", "b")},
    {"labels": ("a", "b"), "labels_only": True},
    {"labels": ("ab cab", "ab b", "c"), "label_prefix": ""},
    {"return_logprobs": True},
    {"return_logits": True, "labels": ("a", "b")},
]


def arrays(value: object) -> Iterator[mx.array]:
    """Every one that is held."""
    if isinstance(value, mx.array):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from arrays(getattr(value, field.name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from arrays(each)
    elif isinstance(value, Mapping):
        yield from arrays(list(value.values()))


@pytest.mark.parametrize("options", ASKED, ids=lambda options: ",".join(options) or "token")
def test_all_that_a_micro_batch_needs_of_the_device_is_queued_at_its_start(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """It would wait for the micro-batch that was queued in between."""
    # As on a GPU: there, nothing waits for the host.
    monkeypatch.setattr(CpuOps, "log_total", Ops.log_total)
    queued: set[int] = set()
    real: Callable[..., None] = mx.async_eval

    def watched(*values: object) -> None:
        queued.update(id(value) for value in arrays(values))
        real(*values)

    monkeypatch.setattr(mx, "async_eval", watched)
    config = GenerateConfig(**options)
    model = load(checkpoint(), core.LoadConfig(), on_gpu=False)
    rows, errors = classify_rows(model, PROMPTS, config, never_stop)
    assert not errors
    task = ClassifyTask(model, config)
    prompts = [row.ids for row in rows]
    part = read(model.decoder, prompts, task.positions(rows), NO_PREFIX, model.fast)
    started = task.queue(rows, [part], never_stop)
    held = {id(value) for value in arrays(started)}
    assert held
    assert held <= queued
    for module in (microbatch, labels, sampling, to_python):
        monkeypatch.setattr(module, "mx", None)  # whatever would queue more, fails
    found = task.results(started.read())
    assert len(found) == len(PROMPTS)
    assert not any(result.error for result in found)


@pytest.mark.parametrize("rows", [1, 2, 7], ids=lambda rows: f"{rows} at once")
def test_logits_of_many_labels_are_queued_in_parts_and_nothing_is_waited_for(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """On a GPU: each part is begun before the next is made, so that few are held at once."""
    events: list[tuple[str, int]] = []
    begin: Callable[..., None] = mx.async_eval
    head = Decoder.logits

    def queued(*values: object) -> None:
        events.append(("queue", 0))
        begin(*values)

    def headed(self: Decoder, hidden: mx.array) -> mx.array:
        events.append(("head", hidden.size // hidden.shape[-1]))
        return head(self, hidden)

    plain = core.LoadConfig(options={"without": ["few_tokens"]})
    model = load(checkpoint(), plain, on_gpu=False)
    model.decoder.ops = Ops()
    config = GenerateConfig(labels=("ab cab", "ab b", "c", "ca b c"), label_prefix="")
    found, _ = classify_rows(model, PROMPTS, config, never_stop)
    task, prompts = ClassifyTask(model, config), [row.ids for row in found]
    part = read(model.decoder, prompts, task.positions(found), NO_PREFIX, model.fast)
    wanted = task.results(task.queue(found, [part], never_stop).read())

    monkeypatch.setattr(Ops, "head_floats", rows * model.config.vocab_size)
    monkeypatch.setattr(Decoder, "logits", headed)
    monkeypatch.setattr(mx, "async_eval", queued)
    monkeypatch.setattr(mx, "eval", None)  # nothing may wait
    started = task.queue(found, [part], never_stop)
    monkeypatch.undo()

    # Behind the micro-batch's own logits, a part at a time; each is begun before the next.
    first, *parts = [count for name, count in events if name == "head"]
    assert first == len(PROMPTS)
    assert len(parts) > 1
    assert max(parts) <= rows
    names = [name for name, _ in events]
    assert ("head", "head") not in list(pairwise(names))
    results = task.results(started.read())
    assert [result.label for result in results] == [result.label for result in wanted]
    for result, other in zip(results, wanted, strict=True):
        assert result.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_a_micro_batch_is_queued_before_the_one_before_is_read_and_put_into_results(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also across the blocks in which prompts are tokenised; on a CPU one after another."""
    monkeypatch.setattr(classifying, "_LIST", (4, 8))
    events: list[str] = []

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            events.append(name)
            return real(*given)

        return call

    for name in ("_queue", "_fetch", "_emit"):
        monkeypatch.setattr(Scheduler, name, noted(name, getattr(Scheduler, name)))
    options = core.LoadConfig(options={"token_budget": 1, "without": ["equal_rows", "prefix"]})
    texts = [f"{'a b c d e f g h'[: index % 7 + 1]}" for index in range(12)]
    with Cpu().load_model(checkpoint(), options) as model:
        wanted = model.classify(texts, labels=["a", "b"])
        assert events == ["_queue", "_fetch", "_emit"] * 12
        events.clear()
        model._loaded = replace(model._loaded, overlap=True)
        assert model.classify(texts, labels=["a", "b"]) == wanted
    assert events == [
        *["_queue", "_queue", "_fetch"],
        *["_queue", "_emit", "_fetch"] * 10,
        *["_emit", "_fetch", "_emit"],
    ]


@pytest.mark.parametrize(("overlap", "jobs"), [(False, 1), (True, 2)])
def test_the_jobs_of_a_micro_batch(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, overlap: bool, jobs: int
) -> None:
    """On a CPU the job that computes it reads it, too; on a GPU the next is queued in between."""
    given: list[object] = []
    real = OwnerThread.submit

    def watched(self: OwnerThread, job: Callable[[], object]) -> object:
        given.append(job)
        return real(self, job)

    options = core.LoadConfig(options={"token_budget": 1, "without": ["prefix"]})
    with Cpu().load_model(checkpoint(), options) as model:
        model._loaded = replace(model._loaded, overlap=overlap)
        monkeypatch.setattr(OwnerThread, "submit", watched)
        model.classify(["ab", "c", "abc"], labels=["a", "b"])
        assert len(given) == 3 * jobs
        given.clear()
        model.score(["ab", "c", "abc"], [" a"] * 3)
        assert len(given) == 3 * jobs


def test_a_prefix_is_computed_once_for_all_blocks(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifying, "_LIST", (4, 8))
    computed: list[int] = []
    real = Prefixes._run

    def noted(self: Prefixes, ids: Sequence[int], known: Prefix) -> Prefix:
        computed.append(len(ids))
        return real(self, ids, known)

    monkeypatch.setattr(Prefixes, "_run", noted)
    texts = ["ab c " * 20 + "abc"[index % 3] for index in range(20)]
    with Cpu().load_model(checkpoint(), EACH_ROW) as model:
        results = model.classify(texts, labels=["a", "b"])
        [prefix] = computed
        tokens = sum(len(model.encode(text)) for text in texts)
        metrics = model.metrics
        assert (metrics.prompt_tokens, metrics.cached_prompt_tokens) == (tokens, 19 * prefix)
        alone = [model.classify([text], labels=["a", "b"])[0] for text in texts[:3]]
    for result, other in zip(results[:3], alone, strict=True):
        assert result.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_tokens_of_rows_that_fail_are_not_reused(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of memory, the row that does not fit counts for nothing, and the others as ever."""
    real = Scheduler._compute

    def scarce(self: Scheduler[Any, Any, Any], batch: MicroBatch[PromptRow]) -> Ran[PromptRow, Any]:
        if any(row.index == 3 for row in batch.rows):
            raise RuntimeError("[malloc] Unable to allocate 1 bytes")
        return real(self, batch)

    monkeypatch.setattr(Scheduler, "_compute", scarce)
    prefix = "ab c " * 20
    with Cpu().load_model(checkpoint(), EACH_ROW) as model:
        texts = [prefix + f"{'abc'[index % 3]} b" for index in range(8)]
        results = model.classify(texts)
        metrics = model.metrics
        assert [index for index, result in enumerate(results) if result.error] == [3]
        shared = len(model.encode(prefix))
        tokens = [len(model.encode(text)) for text in texts]
        assert metrics.prompt_tokens == sum(tokens) - tokens[3]
        assert 6 * (shared - 1) <= metrics.cached_prompt_tokens <= 6 * (shared + 1)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("text", ["", "ab"])
def test_a_stream_is_answered_before_much_of_it_is_taken(
    checkpoint: Callable[..., Path], overlap: bool, text: str
) -> None:
    """Whether or not any prompt of it can run."""
    taken = 0

    def source() -> Iterator[str]:
        nonlocal taken
        for _ in range(5000):
            taken += 1
            yield text

    with Cpu().load_model(checkpoint(), core.LoadConfig()) as model:
        model._loaded = replace(model._loaded, overlap=overlap)
        results = model.classify_iter(source())
        next(results)
        assert taken == 64 + 128  # the second block is tokenised meanwhile
        assert len(list(results)) == 4999


def test_a_few_short_prompts_are_tokenised_without_a_thread_of_its_own(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One text a call is what services ask for, and to wait for a thread is its largest wait."""
    pools: list[str] = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers: int, thread_name_prefix: str) -> None:
            pools.append(thread_name_prefix)
            super().__init__(workers, thread_name_prefix=thread_name_prefix)

    monkeypatch.setattr(classifying, "ThreadPoolExecutor", Pool)
    with Cpu().load_model(checkpoint(), core.LoadConfig()) as model:
        [short] = model.classify(["ab c"], labels=["a", "b"])
        assert model.classify([], labels=["a", "b"]) == []
        assert not pools
        texts = ["ab c", *("c" * 900 for _ in range(5))]
        results = model.classify(texts, labels=["a", "b"])
        assert pools == ["core-tokenizer"]
    assert results[0].probabilities == pytest.approx(short.probabilities, abs=1e-5)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("kept", [0, 2**20], ids=["nothing kept", "prefixes kept"])
def test_one_text_takes_one_job_of_the_owner_thread(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, overlap: bool, kept: int
) -> None:
    """It is compared with recent ones where it runs: to hand a job on is to wait for a thread."""
    jobs: list[object] = []
    submit, post = OwnerThread.submit, OwnerThread.post
    texts = [f"{'ab c ' * 9}{end}" for end in "abcd"]

    def noted(self: OwnerThread, job: Callable[[], Any]) -> Any:
        jobs.append(job)
        return submit(self, job)

    def noted_post(self: OwnerThread, job: Callable[[], None]) -> bool:
        jobs.append(job)
        return post(self, job)

    monkeypatch.setattr(OwnerThread, "submit", noted)
    monkeypatch.setattr(OwnerThread, "post", noted_post)
    config = core.LoadConfig(options={"prefix_cache": kept})
    with Cpu().load_model(checkpoint(), config) as model:
        wanted = model.classify(texts, labels=["a", "b"])
        model._loaded.prefixes.clear()
        model._loaded = replace(model._loaded, overlap=overlap)
        for text, want in zip(texts, wanted, strict=True):
            jobs.clear()
            [found] = model.classify([text], labels=["a", "b"])
            assert len(jobs) == (1 if kept or not overlap else 2)  # as every other micro-batch
            assert found.logprobs == pytest.approx(want.logprobs, abs=1e-4)
            shared = model.metrics.cached_prompt_tokens
        assert (shared > 8) == bool(kept)  # it runs behind what the first ones began with
        jobs.clear()
        model.score([texts[0]], [" a"])
        assert len(jobs) == (1 if kept or not overlap else 2)


def test_an_error_that_is_kept_keeps_no_thread(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(self: object, batch: object) -> None:
        raise TypeError

    monkeypatch.setattr(Scheduler, "_compute", unable)
    with Cpu().load_model(checkpoint(), core.LoadConfig()) as model:
        with pytest.raises(TypeError) as caught:
            model.classify(["ab"] * 600)
        assert caught.value.__traceback__ is not None
        assert not [one for one in threading.enumerate() if "core-tokenizer" in one.name]


def test_what_failed_for_lack_of_memory_holds_nothing_of_its_pass(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its halves would begin with less."""
    passes: list[weakref.ref[Pass]] = []
    alive: list[int] = []

    def scarce(self: object, batch: object) -> object:
        alive.append(sum(one() is not None for one in passes))
        held = Pass()
        passes.append(weakref.ref(held))
        raise RuntimeError("[malloc] Unable to allocate 1 bytes")

    monkeypatch.setattr(Scheduler, "_compute", scarce)
    with Cpu().load_model(checkpoint(), EACH_ROW) as model:
        gc.collect()
        gc.disable()
        try:
            results = model.classify(["ab"] * 8)
        finally:
            gc.enable()
    assert all(isinstance(result.error, core.OutOfMemoryError) for result in results)
    assert len(alive) == 15
    assert max(alive) <= 1


def test_a_call_that_ends_early_withdraws_what_has_not_begun(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    real = Scheduler._compute

    def noted(self: Scheduler[Any, Any, Any], batch: MicroBatch[PromptRow]) -> Ran[PromptRow, Any]:
        started.append(len(batch.rows))
        time.sleep(0.05)
        return real(self, batch)

    def interrupted(self: object, running: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(Scheduler, "_compute", noted)
    monkeypatch.setattr(Scheduler, "_fetch", interrupted)
    options = core.LoadConfig(options={"token_budget": 1, "without": ["prefix"]})
    with Cpu().load_model(checkpoint(), options) as model:
        model._loaded = replace(model._loaded, overlap=True)
        with pytest.raises(KeyboardInterrupt):
            model.classify(["ab", "c", "abc"])
    assert len(started) == 1
