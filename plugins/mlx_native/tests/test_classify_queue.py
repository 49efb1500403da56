"""A GPU works while Python reads the micro-batch before: reading it may queue nothing."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import core
from core.options import GenerateConfig
from core.serving import classifying
from core.serving.reading import Row, classify_rows
from core_mlx_native import classify_pass, host, label_reader, sampling
from core_mlx_native.backend import Cpu
from core_mlx_native.classify import Classifier
from core_mlx_native.classify_pass import Started, results, start
from core_mlx_native.loader import load
from core_mlx_native.reading import NO_PREFIX, Prefix


class Pass:
    """What a forward pass has computed."""


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
    for module in (label_reader, sampling):  # as on a GPU: there, nothing waits for the host
        if hasattr(module, "on_cpu"):
            monkeypatch.setattr(module, "on_cpu", lambda: False)
    queued: set[int] = set()
    real: Callable[..., None] = mx.async_eval

    def watched(*values: object) -> None:
        queued.update(id(value) for value in arrays(values))
        real(*values)

    monkeypatch.setattr(mx, "async_eval", watched)
    config = GenerateConfig(**options)
    model = load(checkpoint(), core.LoadConfig(), on_gpu=False)
    rows, errors = classify_rows(model, PROMPTS, config)
    assert not errors
    started = start(model, rows, NO_PREFIX, config)
    held = {id(value) for value in arrays(started)}
    assert held
    assert held <= queued
    for module in (classify_pass, label_reader, sampling, host):
        monkeypatch.setattr(module, "mx", None)  # whatever would queue more, fails
    found = results(started.read(), config, model.tokenizer.token_text)
    assert len(found) == len(PROMPTS)
    assert not any(result.error for result in found)


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

    for name in ("_begin", "_read", "_end"):
        monkeypatch.setattr(Classifier, name, noted(name, getattr(Classifier, name)))
    options = core.LoadConfig(options={"token_budget": 1, "without": ["prefix"]})
    texts = [f"{'a b c d e f g h'[: index % 7 + 1]}" for index in range(12)]
    with Cpu().load_model(checkpoint(), options) as model:
        wanted = model.classify(texts, labels=["a", "b"])
        assert events == ["_begin", "_read", "_end"] * 12
        events.clear()
        model._loaded = replace(model._loaded, overlap=True)
        assert model.classify(texts, labels=["a", "b"]) == wanted
    assert events == [
        *["_begin", "_begin", "_read"],
        *["_begin", "_end", "_read"] * 10,
        *["_end", "_read", "_end"],
    ]


def test_a_prefix_is_computed_once_for_all_blocks(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classifying, "_LIST", (4, 8))
    computed: list[int] = []
    real = Classifier._run_prefix

    def noted(self: Classifier, ids: Sequence[int]) -> Prefix:
        computed.append(len(ids))
        return real(self, ids)

    monkeypatch.setattr(Classifier, "_run_prefix", noted)
    texts = ["ab c " * 20 + "abc"[index % 3] for index in range(20)]
    with Cpu().load_model(checkpoint(), core.LoadConfig()) as model:
        results = model.classify(texts)
        [prefix] = computed
        tokens = sum(len(model.encode(text)) for text in texts)
        metrics = model.metrics
        assert (metrics.prompt_tokens, metrics.cached_prompt_tokens) == (tokens, 19 * prefix)
        alone = [model.classify([text])[0] for text in texts[:3]]
    assert [result.token for result in results[:3]] == [result.token for result in alone]


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


def test_an_error_that_is_kept_keeps_no_thread(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Classifier, "_start", None)
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

    def scarce(self: Classifier, rows: Sequence[object], prefix: Prefix) -> object:
        alive.append(sum(one() is not None for one in passes))
        held = Pass()
        passes.append(weakref.ref(held))
        raise RuntimeError("[malloc] Unable to allocate 1 bytes")

    monkeypatch.setattr(Classifier, "_start", scarce)
    with Cpu().load_model(checkpoint(), core.LoadConfig()) as model:
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
    real = Classifier._start

    def noted(self: Classifier, rows: Sequence[Row], prefix: Prefix) -> Started:
        started.append(len(rows))
        time.sleep(0.05)
        return real(self, rows, prefix)

    def interrupted(self: Classifier, begun: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(Classifier, "_start", noted)
    monkeypatch.setattr(Classifier, "_read", interrupted)
    options = core.LoadConfig(options={"token_budget": 1, "without": ["prefix"]})
    with Cpu().load_model(checkpoint(), options) as model:
        model._loaded = replace(model._loaded, overlap=True)
        with pytest.raises(KeyboardInterrupt):
            model.classify(["ab", "c", "abc"])
    assert len(started) == 1
