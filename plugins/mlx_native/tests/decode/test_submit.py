"""``submit``, and what becomes of streams: several at once, closed early, dropped, cancelled."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import core
import core.extensions
from core_mlx_native.backend import Cpu
from core_mlx_native.capabilities import MODEL_CAPABILITIES
from core_mlx_native.model import MlxModel
from core_runtime.tokenizer.model_tokenizer import Tokenizer

Checkpoint = Callable[..., Path]
PROMPT = "ab ab no"
ENDLESS = core.GenerateConfig(max_tokens=10**9, timeout=300)  # at which a test has failed
SHORT = core.GenerateConfig(max_tokens=3, timeout=300)  # if it never gets a slot, that is a failure


@pytest.fixture
def model(checkpoint: Checkpoint) -> Iterator[MlxModel]:
    """Two slots, and generations that go on until something ends them."""
    with load(checkpoint, parallel_slots=2) as loaded:
        yield loaded


@pytest.fixture
def narrow(checkpoint: Checkpoint) -> Iterator[MlxModel]:
    """The same with one slot."""
    with load(checkpoint, parallel_slots=1) as loaded:
        yield loaded


def load(checkpoint: Checkpoint, **options: Any) -> MlxModel:
    directory = checkpoint("llama")
    (directory / "tokenizer_config.json").unlink()  # which names the EOS
    config = core.LoadConfig(context_len=32, context_overflow="rotate", **options)
    return Cpu().load_model(directory, config)


def ids(stream: core.TokenStream) -> list[int]:
    return [token.id for token in stream]


def assert_a_slot_is_free(model: MlxModel) -> None:
    """A request that waits for ever ends with a timeout."""
    stream = model.submit(PROMPT, SHORT)
    assert len(list(stream)) == 3
    assert stream.finish_reason == "length"


# ---------------------------------------------------------------- submit


def test_it_begins_before_the_stream_is_read(model: MlxModel) -> None:
    seen = threading.Event()

    class Watcher:
        def is_set(self) -> bool:
            seen.set()
            return False

    stream = model.submit(PROMPT, core.GenerateConfig(max_tokens=4, cancel=Watcher()))
    assert seen.wait(60)
    unread = stream.finish_reason
    assert unread is None
    assert ids(stream) == ids(model.generate(PROMPT, max_tokens=4))
    assert stream.finish_reason == "length"
    assert stream.metrics.generated_tokens == 4


def test_generate_waits_for_the_first_next(model: MlxModel) -> None:
    class Forbidden:
        def is_set(self) -> bool:
            raise AssertionError("the request runs")

    model.generate(PROMPT, max_tokens=4, cancel=Forbidden())
    assert_a_slot_is_free(model)


def test_options_are_checked_at_the_call(model: MlxModel) -> None:
    wrong: Any = {"temperature": 0.5}
    with pytest.raises(TypeError, match="GenerateConfig"):
        model.submit(PROMPT, wrong)
    with pytest.raises(TypeError):
        model.submit(PROMPT, temperature=0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="strings"):
        model.submit(3)  # type: ignore[arg-type]
    carrying = core.GenerateConfig(max_tokens=4, labels=("ab",), return_logits=True)
    assert ids(model.submit(PROMPT, carrying)) == ids(model.generate(PROMPT, max_tokens=4))


@pytest.mark.parametrize(
    ("prompt", "error"),
    [("", core.EmptyPromptError), ("\ud800", core.RequestError)],
)
def test_a_prompt_that_cannot_run_raises_from_the_stream(
    model: MlxModel, prompt: str, error: type[core.RequestError]
) -> None:
    stream = model.submit(prompt)
    with pytest.raises(error):
        next(stream)
    assert stream.finish_reason == "error"
    assert list(stream) == []
    assert_a_slot_is_free(model)


def test_a_failed_submit_is_tried_once(model: MlxModel, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def encode(self: Tokenizer, text: str) -> list[int]:
        asked.append(text)
        return []

    monkeypatch.setattr(Tokenizer, "encode", encode)
    stream = model.submit(PROMPT)
    with pytest.raises(core.EmptyPromptError):
        next(stream)
    assert list(stream) == []
    assert asked == [PROMPT]
    unread = model.submit(PROMPT)
    unread.close()
    assert unread.finish_reason == "error"


def test_an_unexpected_error_comes_from_the_stream_once(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(self: Tokenizer, text: str) -> list[int]:
        raise ZeroDivisionError

    monkeypatch.setattr(Tokenizer, "encode", encode)
    for stream in (model.submit(PROMPT), model.generate(PROMPT)):
        with pytest.raises(ZeroDivisionError):
            next(stream)
        assert stream.finish_reason == "error"
        assert list(stream) == []


def test_more_requests_than_slots_from_several_threads(model: MlxModel) -> None:
    prompts = [f"ab no {'x' * n}" for n in range(12)]
    config = core.GenerateConfig(max_tokens=9, temperature=1.0, seed=4)
    expected = [ids(model.generate(prompt, config)) for prompt in prompts]
    found: dict[str, list[int]] = {}

    def serve(some: list[str]) -> None:
        streams = {prompt: model.submit(prompt, config) for prompt in some}
        found.update((prompt, ids(stream)) for prompt, stream in streams.items())

    threads = [threading.Thread(target=serve, args=(prompts[i::3],)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[prompt] for prompt in prompts] == expected


def test_streams_of_one_thread_may_be_read_in_any_order(narrow: MlxModel) -> None:
    expected = ids(narrow.generate(PROMPT, max_tokens=6))
    first, second = (narrow.generate(PROMPT, max_tokens=6) for _ in range(2))
    assert next(first).id == expected[0]
    assert ids(second) == expected  # the engine does not wait for the first one's reader
    assert ids(first) == expected[1:]


def test_a_request_is_served_while_another_one_runs(model: MlxModel) -> None:
    running = model.submit(PROMPT, ENDLESS)
    next(running)
    assert_a_slot_is_free(model)
    assert running.finish_reason is None
    next(running)
    running.close()


# ---------------------------------------------------------------- close


def test_closing_early_stops_it_and_frees_its_slot(narrow: MlxModel) -> None:
    stream = narrow.generate(PROMPT, ENDLESS)
    for _ in range(3):
        next(stream)
    stream.close()
    assert stream.finish_reason == "cancelled"
    assert stream.metrics.prompt_tokens == len(narrow.encode(PROMPT))
    assert stream.metrics.generated_tokens >= 3
    assert narrow.metrics == stream.metrics
    assert list(stream) == []  # no error: the reader asked for it
    assert_a_slot_is_free(narrow)


def test_when_close_returns_nothing_is_held(narrow: MlxModel) -> None:
    before = narrow.memory().active_bytes
    stream = narrow.generate(PROMPT, ENDLESS)
    for _ in range(40):
        next(stream)
    assert narrow.memory().active_bytes > before
    stream.close()
    assert narrow.memory().active_bytes == before


def test_closing_twice_is_fine(narrow: MlxModel) -> None:
    stream = narrow.generate(PROMPT, ENDLESS)
    next(stream)
    stream.close()
    metrics = stream.metrics
    stream.close()
    assert (stream.finish_reason, stream.metrics) == ("cancelled", metrics)


def test_closing_before_the_first_next_means_that_nothing_runs(
    narrow: MlxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(self: Tokenizer, text: str) -> list[int]:
        raise AssertionError("the prompt is tokenised")

    stream = narrow.generate(PROMPT, ENDLESS)
    monkeypatch.setattr(Tokenizer, "encode", encode)
    stream.close()
    stream.close()
    assert list(stream) == []
    assert stream.finish_reason == "cancelled"
    assert stream.metrics == core.GenerateMetrics()


def test_closing_after_the_end_changes_nothing(narrow: MlxModel) -> None:
    stream = narrow.generate(PROMPT, max_tokens=3)
    list(stream)
    metrics = stream.metrics
    stream.close()
    assert (stream.finish_reason, stream.metrics) == ("length", metrics)
    failed = narrow.generate("")
    with pytest.raises(core.EmptyPromptError):
        next(failed)
    failed.close()
    assert failed.finish_reason == "error"


def test_closing_a_stream_that_waits_for_a_slot(narrow: MlxModel) -> None:
    running = narrow.submit(PROMPT, ENDLESS)
    waiting = narrow.submit(PROMPT, ENDLESS)
    waiting.close()
    assert waiting.finish_reason == "cancelled"
    assert waiting.metrics.generated_tokens == 0
    next(running)
    assert running.finish_reason is None
    running.close()
    assert_a_slot_is_free(narrow)


@pytest.mark.parametrize("read", [0, 2])
def test_a_stream_that_is_dropped_frees_its_slot(narrow: MlxModel, read: int) -> None:
    stream = narrow.submit(PROMPT, ENDLESS)
    for _ in range(read):
        next(stream)
    gone = weakref.ref(stream)
    del stream
    gc.collect()
    assert gone() is None
    assert_a_slot_is_free(narrow)


def test_a_reader_that_raises_frees_its_slot(narrow: MlxModel) -> None:
    def read() -> None:
        for count, _ in enumerate(narrow.generate(PROMPT, ENDLESS)):
            if count == 2:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read()
    gc.collect()
    assert_a_slot_is_free(narrow)


# ---------------------------------------------------------------- cancel and timeout


def test_cancelled_while_it_waits_for_a_slot(narrow: MlxModel) -> None:
    cancel = threading.Event()
    running = narrow.submit(PROMPT, ENDLESS)
    next(running)
    waiting = narrow.submit(PROMPT, core.GenerateConfig(max_tokens=5, cancel=cancel))
    cancel.set()
    with pytest.raises(core.GenerationCancelled):
        next(waiting)
    assert waiting.finish_reason == "cancelled"
    assert waiting.metrics.generated_tokens == 0
    next(running)  # all the while, the slot was taken
    assert running.finish_reason is None
    running.close()
    assert_a_slot_is_free(narrow)


def test_timed_out_while_it_waits_for_a_slot(narrow: MlxModel) -> None:
    running = narrow.submit(PROMPT, ENDLESS)
    next(running)
    waiting = narrow.submit(PROMPT, core.GenerateConfig(max_tokens=5, timeout=1e-3))
    with pytest.raises(core.GenerationTimeout):
        next(waiting)
    assert waiting.finish_reason == "error"
    next(running)
    running.close()
    assert_a_slot_is_free(narrow)


def test_cancelling_one_leaves_its_neighbour_alone(model: MlxModel) -> None:
    expected = ids(model.generate(PROMPT, max_tokens=60))
    cancel = threading.Event()
    doomed = model.submit("no x", core.GenerateConfig(max_tokens=10**9, cancel=cancel))
    kept = model.submit(PROMPT, core.GenerateConfig(max_tokens=60))
    next(doomed)
    cancel.set()
    with pytest.raises(core.GenerationCancelled):
        list(doomed)
    assert ids(kept) == expected
    assert_a_slot_is_free(model)


def test_closing_the_model_ends_what_runs_and_what_waits(narrow: MlxModel) -> None:
    streams = [narrow.submit(PROMPT, ENDLESS) for _ in range(3)]
    next(streams[0])
    narrow.close()
    for stream in streams:
        with pytest.raises(core.ModelClosedError):
            list(stream)
        assert stream.finish_reason == "error"


# ---------------------------------------------------------------- what the model is


def test_it_is_what_it_declares_for_every_optional_protocol(model: MlxModel) -> None:
    protocols = {
        name: kind
        for name, kind in inspect.getmembers(core.extensions, inspect.isclass)
        if kind.__module__ == "core.extensions" and getattr(kind, "_is_runtime_protocol", False)
    }
    of_backends = {"ModelProbe", "ModelFinding", "DeviceReporting"}
    declared = {capability.name.replace("_", "") for capability in Cpu().capabilities}
    assert {"Submitting", "BatchStreaming", "Scoring", "Tokenizing", *of_backends} <= set(protocols)
    for name, kind in protocols.items():
        holder: object = Cpu() if name in of_backends else model
        assert isinstance(holder, kind) == (name.upper() in declared), name


@pytest.mark.parametrize(
    ("capability", "option", "value"),
    [(core.Capability.SEED, "seed", 0), (core.Capability.LOGPROBS, "return_logprobs", True)],
)
def test_what_is_not_declared_is_refused_at_the_call(
    model: MlxModel,
    monkeypatch: pytest.MonkeyPatch,
    capability: core.Capability,
    option: str,
    value: Any,
) -> None:
    rest = MODEL_CAPABILITIES - {capability}
    monkeypatch.setattr(model, "_capabilities", rest)
    config = dataclasses.replace(core.GenerateConfig(max_tokens=2), **{option: value})
    monkeypatch.setattr(Tokenizer, "render_chat", lambda *_: PROMPT)
    calls: list[Callable[[core.GenerateConfig], object]] = [
        lambda config: model.generate(PROMPT, config),
        lambda config: model.submit(PROMPT, config),
        lambda config: model.chat([core.Message("user", PROMPT)], config),
        lambda config: model.classify([PROMPT], config),
        lambda config: model.batch_generate([PROMPT], config),
        lambda config: model.batch_stream([PROMPT], config),
        lambda config: model.generate_tokens([5, 6], config),
    ]
    for call in calls:
        with pytest.raises(core.UnsupportedOptionError) as caught:
            call(config)
        assert (caught.value.option, caught.value.backend) == (option, "mlx_cpu")
        assert call(core.GenerateConfig(max_tokens=2)) is not None
