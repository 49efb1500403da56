"""Streams over a worker whose model is a script: order, ends, turns, and what is given back."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import core
from core_mlx_lm_bridge.model import BridgeModel

Fake = Callable[..., BridgeModel]


def numbers(count: int) -> str:
    return "".join(f"{number} " for number in range(count))


def test_tokens_in_order(fake: Fake) -> None:
    stream = fake().generate("count 1000", max_tokens=2000)
    tokens = list(stream)
    assert "".join(token.text for token in tokens) == numbers(1000)
    assert [token.id for token in tokens] == list(range(1000))
    assert (stream.finish_reason, stream.metrics.generated_tokens) == ("stop", 1000)
    assert stream.metrics.prompt_tokens == 3


def test_length(fake: Fake) -> None:
    stream = fake().generate("count 9", max_tokens=4)
    assert len(list(stream)) == 4
    assert stream.finish_reason == "length"


def test_a_request_that_no_pipe_holds(fake: Fake) -> None:
    text = "\u2603" * 500_000
    (token,) = fake().chat([core.Message("user", text)])
    assert (token.text, token.id) == ("user", 500_000)


def test_options_arrive(fake: Fake) -> None:
    config = core.GenerateConfig(
        max_tokens=7, temperature=0.5, top_k=3, top_p=0.25, min_p=0.125, repeat_penalty=2.0,
        seed=2**64 - 1, stop_tokens=(4, 5), return_logprobs=True,
    )  # fmt: skip
    (token,) = fake().generate("echo", config)
    for part in (
        '"max_tokens":7', '"temperature":0.5', '"top_k":3', '"top_p":0.25', '"min_p":0.125',
        '"repeat_penalty":2.0', '"seed":18446744073709551615', '"stop_tokens":[4,5]',
        '"return_logprobs":true', '"prompt":"echo"',
    ):  # fmt: skip
        assert part in token.text


def test_a_filter_that_mlx_lm_lacks_is_refused_by_name(fake: Fake) -> None:
    model = fake()
    with pytest.raises(core.UnsupportedOptionError, match="typical_p"):
        model.generate("echo", temperature=1.0, typical_p=0.5)
    with pytest.raises(core.UnsupportedOptionError, match="typical_p"):
        model.chat([core.Message("user", "echo")], typical_p=0.5)


def test_stop_string_ends_the_worker_too(fake: Fake) -> None:
    model = fake()
    stream = model.generate("count 1000000 0.001", max_tokens=10**6, stop=["12 13"])
    assert "".join(token.text for token in stream) == numbers(12)
    assert (stream.finish_reason, stream.metrics.generated_tokens) == ("stop", 12)
    assert stream.metrics.prompt_tokens == 3  # the worker's last answer was waited for
    assert len(list(model.generate("count 2"))) == 2


def test_cancel(fake: Fake) -> None:
    model, cancel = fake(), threading.Event()
    stream = model.generate("count 1000000 0.001", max_tokens=10**6, cancel=cancel)
    next(stream)
    cancel.set()
    with pytest.raises(core.GenerationCancelled):
        next(stream)
    assert stream.finish_reason == "cancelled"
    assert list(stream) == []
    assert "".join(token.text for token in model.generate("count 3")) == numbers(3)


def test_cancel_of_a_worker_that_is_busy_for_long(fake: Fake, tmp_path: Path) -> None:
    """It is not waited for; its late answers are passed over."""
    model, cancel = fake(), threading.Event()
    stream = model.generate(f"behind {tmp_path / 'end'}", cancel=cancel)
    threading.Timer(0.1, cancel.set).start()
    with pytest.raises(core.GenerationCancelled):
        next(stream)
    (tmp_path / "end").touch()  # only now it can answer
    assert "".join(token.text for token in model.generate("count 3")) == numbers(3)


def test_timeout(fake: Fake) -> None:
    model = fake()
    with pytest.raises(core.GenerationTimeout):
        list(model.generate("count 1000000 0.001", max_tokens=10**6, timeout=0.2))
    assert len(list(model.generate("count 3"))) == 3


def test_closed_early(fake: Fake) -> None:
    model = fake()
    for read in range(3):
        stream = model.generate("count 1000000 0.001", max_tokens=10**6)
        for _ in range(read):
            next(stream)
        stream.close()
        stream.close()
        assert stream.finish_reason == "cancelled"
        assert list(stream) == []
    assert len(list(model.generate("count 3"))) == 3


def test_dropped_streams_make_room(fake: Fake) -> None:
    model = fake()
    for _ in range(5):
        next(model.generate("count 1000000 0.001", max_tokens=10**6))
        gc.collect()
    assert len(list(model.generate("count 3"))) == 3


def test_closed_by_another_thread(fake: Fake) -> None:
    stream = fake().generate("count 3 30")
    threading.Timer(0.3, stream.close).start()
    assert list(stream) == []
    assert stream.finish_reason == "cancelled"


def test_second_stream_of_one_thread(fake: Fake) -> None:
    model = fake()
    stream = model.generate("count 3")
    next(stream)
    with pytest.raises(core.ModelBusyError):
        next(model.generate("count 3"))
    assert len(list(stream)) == 2
    assert len(list(model.generate("count 3"))) == 3


def test_threads_take_turns(fake: Fake) -> None:
    model = fake()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: list(model.generate(f"count {n}")), range(1, 41)))
    assert [len(tokens) for tokens in found] == list(range(1, 41))
    assert all([token.id for token in tokens] == [*range(len(tokens))] for tokens in found)


def test_cancelled_while_it_waits_for_its_turn(fake: Fake) -> None:
    model, cancel = fake(), threading.Event()
    first = model.generate("count 3")
    next(first)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: list(model.generate("count 3", cancel=cancel)))
        cancel.set()
        with pytest.raises(core.GenerationCancelled):
            waiting.result(10)
    assert len(list(first)) == 2


def test_model_closed_while_a_stream_is_read(fake: Fake) -> None:
    model = fake()
    stream = model.generate("count 3 30")
    threading.Timer(0.3, model.close).start()
    with pytest.raises(core.ModelClosedError):
        list(stream)
    with pytest.raises(core.ModelClosedError):
        model.generate("count 3")


def test_stream_of_a_closed_model(fake: Fake) -> None:
    model = fake()
    unread, running = model.generate("count 3"), model.generate("count 3")
    next(running)
    model.close()
    for stream in (unread, running):
        with pytest.raises(core.ModelClosedError):
            list(stream)


def test_wrong_prompts(fake: Fake) -> None:
    model = fake()
    with pytest.raises(core.EmptyPromptError):
        next(model.generate(""))
    with pytest.raises(core.RequestError, match="not valid Unicode"):
        next(model.generate("\ud800"))
    with pytest.raises(core.RequestError, match="not valid Unicode"):
        next(model.chat([core.Message("user", "\ud800")]))
    with pytest.raises(core.ChatTemplateError):
        model.chat([])
    with pytest.raises(core.InvalidOptionError):
        model.chat([core.Message("robot", "hi")])  # type: ignore[arg-type]
    assert len(list(model.generate("count 3"))) == 3


def test_refusals(fake: Fake) -> None:
    model = fake()
    for refused in (lambda: model.classify(["a"]), lambda: model.batch_generate(["a"])):
        with pytest.raises(core.UnsupportedOperationError, match="does not support"):
            refused()


def test_a_rendered_prompt_is_refused_for_its_special_tokens_would_be_lost(fake: Fake) -> None:
    model = fake()
    with pytest.raises(core.RequestError, match=r"Use chat\(\), or a plain string"):
        list(model.generate(core.RenderedPrompt("count 3"), max_tokens=3))
    assert list(model.generate("count 3", max_tokens=3))


def test_messages_may_be_mappings(fake: Fake) -> None:
    model = fake()
    turns = [core.Message("user", "count 3")]
    as_mappings = [{"role": "user", "content": "count 3"}]
    assert list(model.chat(as_mappings, max_tokens=3)) == list(model.chat(turns, max_tokens=3))
    with pytest.raises(TypeError, match="Message 1, content: "):
        model.chat([*turns, {"role": "user"}])
