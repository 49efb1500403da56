"""A model behind infer-cli serve: over the wire it says what it says in process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import core
from core.errors import (
    ChatTemplateError,
    EmptyPromptError,
    GenerationCancelled,
    GenerationTimeout,
    InvalidOptionError,
    ModelAccessError,
    ModelClosedError,
    ModelNotFoundError,
    UnsupportedOperationError,
    UnsupportedOptionError,
)
from core.kit.support import compares_sentences
from core.models.fingerprint import fingerprint_of
from core.protocols import Capability
from core.testing import FakeEncoder, FakeModel
from core_server import Settings

pytestmark = pytest.mark.load  # a busy machine can make it fail

Serving = Callable[..., str]


def fake(text: str = "Good day to you") -> FakeModel:
    """A model whose labels are as likely as they are long."""

    def labels(prompt: str, among: Any) -> dict[str, float]:
        total = sum(map(len, among)) + len(prompt) % 7
        return {label: len(label) / total for label in among}

    return FakeModel(text, labels=labels)


PROMPTS = ["a river", "", "the hill", "\ud800", "a river"]
LABELS = ("finance", "sports")


@pytest.fixture
def both(serving: Serving) -> Iterator[tuple[FakeModel, Any]]:
    """The same model in process, and as its server has it."""
    url = serving(fake=fake())
    with core.load_model(url) as model:
        yield fake(), model


def marked(prompt: str) -> str:
    assert isinstance(prompt, core.RenderedPrompt)
    return prompt.marked


def test_a_chat_template_is_told_the_same(both: tuple[FakeModel, Any]) -> None:
    own, model = both
    turns = [core.Message("user", "hi"), core.Message("assistant", "Yes <end>")]
    config = core.GenerateConfig(continue_final_message=True)
    asked, wanted = model.render_chat(turns, config), own.render_chat(turns, config)
    assert (str(asked), marked(asked)) == (str(wanted), marked(wanted))
    assert asked.endswith("Yes <end>")
    answer = model.chat(turns, config, max_tokens=4)
    assert answer.text() == own.chat(turns, config, max_tokens=4).text()

    for call in (model.render_chat, lambda *a, **o: model.chat(*a, **o).text()):
        with pytest.raises(InvalidOptionError, match="'tone' is not valid") as raised:
            call(turns, chat_template_kwargs={"tone": 1})
        assert (raised.value.option, raised.value.value) == ("chat_template_kwargs", "tone")
        with pytest.raises(ChatTemplateError, match="no place for a message's name"):
            call([core.Message("user", "hi", "ann")])
        with pytest.raises(ChatTemplateError, match="the user's"):
            call(turns[:1], continue_final_message=True)


def _told(results: Any) -> list[dict[str, Any]]:
    return [result.to_dict() for result in results]


def test_an_address_is_a_model(serving: Serving) -> None:
    url = serving(one=fake("one"), two=fake("two"))
    assert core.default_backend(url).name == "remote"
    with core.load_model(url) as first, core.load_model(f"{url}#two") as second:
        assert first.generate("a").text() == "one"
        assert second.generate("a").text() == "two"
    with pytest.raises(ModelNotFoundError, match="Available: 'one', 'two'"):
        core.load_model(f"{url}#three")


def test_rows_are_what_they_are_in_process(both: tuple[FakeModel, Any]) -> None:
    own, model = both
    for options in ({}, {"labels": LABELS}, {"return_logprobs": True}):
        found, wanted = model.classify(PROMPTS, **options), own.classify(PROMPTS, **options)
        assert _told(found) == _told(wanted)
        assert [type(row.error) for row in found] == [type(row.error) for row in wanted]
    given: dict[str, Any] = {
        "max_tokens": 5,
        "seed": 3,
        "temperature": 0.7,
        "return_logprobs": True,
    }
    assert _told(model.batch_generate(PROMPTS, **given)) == _told(
        own.batch_generate(PROMPTS, **given)
    )
    assert _told(model.classify_iter(iter(PROMPTS * 40), labels=LABELS)) == _told(
        own.classify(PROMPTS * 40, labels=LABELS)
    )
    layers: dict[str, Any] = {"layers": (-1, 0)}
    assert [row.states for row in model.hidden_states(PROMPTS, **layers)] == [
        row.states for row in own.hidden_states(PROMPTS, **layers)
    ]
    assert model.classify([]) == []


def test_streams_are_what_they_are_in_process(both: tuple[FakeModel, Any]) -> None:
    own, model = both
    for options in ({}, {"stop": "day"}, {"max_tokens": 3}, {"return_logprobs": True}):
        for ask in ("generate", "chat", "submit"):
            prompt: Any = [{"role": "user", "content": "hi"}] if ask == "chat" else "hi"
            given: Any = [core.GenerateConfig(**options)]
            one, other = getattr(own, ask)(prompt, *given), getattr(model, ask)(prompt, *given)
            assert list(one) == list(other)
            assert one.finish_reason == other.finish_reason
            assert one.metrics.generated_tokens == other.metrics.generated_tokens
            assert one.metrics.prompt_tokens == other.metrics.prompt_tokens
    assert list(model.batch_stream(["a", "b"], max_tokens=2)) == list(
        own.batch_stream(["a", "b"], max_tokens=2)
    )
    with pytest.raises(EmptyPromptError):
        list(model.batch_stream(["a", "", "b"], max_tokens=2))


def test_texts_and_ids(both: tuple[FakeModel, Any]) -> None:
    own, model = both
    turns = [{"role": "user", "content": "a <end> b"}]
    rendered = model.render_chat(turns)
    expected = own.render_chat(turns)
    assert (rendered, marked(rendered)) == (expected, marked(expected))
    assert model.encode(rendered) == own.encode(own.render_chat(turns))
    assert model.decode([97, 98]) == "ab"
    assert model.info == own.info
    assert fingerprint_of(model) == fingerprint_of(own)


def test_infinities_cross_the_wire(serving: Serving) -> None:
    model = FakeModel("x", labels=lambda prompt, labels: {labels[0]: 1.0})
    with core.load_model(serving(fake=model)) as remote:
        [row] = remote.classify(["a"], labels=("x", "y"))
        assert row.logprobs == {"x": 0.0, "y": -math.inf}


def test_what_a_server_does_not_offer_is_refused_by_name(both: tuple[FakeModel, Any]) -> None:
    _, model = both
    assert Capability.SCORING not in model.declared()
    assert not isinstance(model, core.Scoring | core.TokenPrompts)
    assert [isinstance(each, core.Tokenizing) for each in (model,)] == [True]
    with pytest.raises(UnsupportedOptionError, match="typical_p"):
        model.generate("a", typical_p=0.5)
    with pytest.raises(UnsupportedOptionError, match="return_logits"):
        model.classify(["a"], return_logits=True)


class Slow(FakeModel):
    """Says a character each time that it is let, and notes when it is stopped."""

    def __init__(self) -> None:
        super().__init__("x" * 1000, labels=None)
        self.stopped, self.begun = threading.Event(), threading.Event()

    def generate(self, prompt: Any, config: Any = None, /, **options: Any) -> Any:
        stream = super().generate(prompt, config, **options)
        if config.max_tokens > 1:
            return _Slowly(stream, config, self)
        return stream

    def batch_generate(self, prompts: Any, config: Any = None, /, **options: Any) -> Any:
        self.begun.set()
        while not config.cancel.is_set():
            time.sleep(0.005)
        self.stopped.set()
        return super().batch_generate(prompts, config)


class _Slowly:
    def __init__(self, stream: Any, config: Any, model: Slow) -> None:
        self._stream, self._config, self._model = stream, config, model
        self._over = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Note that it is stopped, where it comes between two characters."""
        if not self._over:
            self._model.stopped.set()
        self._stream.close()

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        self._model.begun.set()
        time.sleep(0.002)
        try:
            return next(self._stream)
        except StopIteration:
            self._over = True
            raise
        except GenerationCancelled:
            self._model.stopped.set()
            raise


@pytest.fixture
def slow(serving: Serving) -> Iterator[tuple[Slow, Any]]:
    own = Slow()
    with core.load_model(serving(fake=own)) as model:
        yield own, model


def test_a_stream_that_is_closed_stops_the_server(slow: tuple[Slow, Any]) -> None:
    own, model = slow
    stream = model.generate("a", max_tokens=1000)
    next(stream)
    stream.close()
    assert own.stopped.wait(60)
    assert stream.finish_reason == "cancelled"
    assert stream.metrics.prompt_tokens == 1
    assert model.generate("a", max_tokens=1).text() == "x"


def test_a_stream_that_is_dropped_stops_the_server(slow: tuple[Slow, Any]) -> None:
    own, model = slow
    stream = model.generate("a", max_tokens=1000)
    next(stream)
    del stream
    gc.collect()
    assert own.stopped.wait(60)


def test_cancel_and_timeout_keep_what_a_row_had(slow: tuple[Slow, Any]) -> None:
    own, model = slow
    cancel = threading.Event()

    def later() -> None:
        own.begun.wait(60)
        cancel.set()

    threading.Thread(target=later).start()
    rows = model.batch_generate(["a", "b"], max_tokens=1000, cancel=cancel)
    assert [type(row.error) for row in rows] == [GenerationCancelled] * 2
    assert own.stopped.wait(60)
    late = model.batch_generate(["a", "b"], max_tokens=10, timeout=0.05)
    assert [row.error.seconds for row in late] == [0.05, 0.05]
    with pytest.raises(GenerationTimeout):
        model.generate("a", max_tokens=1000, timeout=0.05).text()
    with pytest.raises(GenerationCancelled):
        model.generate("a", max_tokens=1000, cancel=cancel).text()


def test_a_task_that_is_cancelled_stops_the_server(slow: tuple[Slow, Any]) -> None:
    own, model = slow

    async def given_up() -> None:
        task = asyncio.ensure_future(model.call_async("batch_generate", ["a"], max_tokens=9))
        while not own.begun.is_set():
            await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(given_up())
    assert own.stopped.wait(60)
    assert model.generate("a", max_tokens=1).text() == "x"


def test_close_ends_what_runs_and_the_thread(slow: tuple[Slow, Any]) -> None:
    own, model = slow
    stream = model.generate("a", max_tokens=1000)
    next(stream)
    model.close()
    with pytest.raises(ModelClosedError):
        list(stream)
    assert own.stopped.wait(60)
    assert not [each for each in threading.enumerate() if each.name == "core-remote"]
    with pytest.raises(ModelClosedError):
        model.classify(["a"])


def test_a_key_is_asked_for_and_never_shown(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = serving(Settings(api_key="a-secret"), fake=fake())
    with pytest.raises(ModelAccessError, match="CORE_REMOTE_API_KEY") as refused:
        core.load_model(url, options={"api_key": "wrong-secret"})
    assert "wrong-secret" not in str(refused.value)
    config = core.LoadConfig(options={"api_key": "a-secret"})
    assert "a-secret" not in repr(config)
    model: Any = core.load_model(url, config)
    with model:
        held = [model, model._connection, model._connection.settings, *model.choices()]
        assert "a-secret" not in repr(held)
        assert "a-secret" not in repr(vars(model._connection))
    monkeypatch.setenv("CORE_REMOTE_API_KEY", "a-secret")
    core.load_model(url).close()
    with pytest.raises(ModelNotFoundError, match="would show") as told:
        core.load_model("http://user:a-secret@127.0.0.1:1")
    assert "a-secret" not in str(told.value)


def test_a_full_queue_is_an_error_of_its_own_and_the_next_call_works(serving: Serving) -> None:
    own = Slow()
    url = serving(Settings(max_queue=1), fake=own)
    with core.load_model(url) as model:
        stream = model.generate("a", max_tokens=1000)
        next(stream)
        from core_remote.failures import ServerBusyError

        with pytest.raises(ServerBusyError) as refused:
            model.classify(["a"])
        assert (refused.value.status, refused.value.retry_after) == (429, 1.0)
        stream.close()
        assert own.stopped.wait(60)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                model.classify(["a"])
                break
            except ServerBusyError:
                time.sleep(0.01)
        else:
            pytest.fail("the place was never given back")


def test_no_awaited_stream_stays_however_it_ends(
    both: tuple[FakeModel, Any], left_of_streams: Callable[..., dict[str, int]]
) -> None:
    left = left_of_streams(both[1])
    assert not any(left.values()), left


@pytest.mark.parametrize("stop", ["read", "failed", "closed", "dropped"])
def test_no_stream_stays_however_it_ends(both: tuple[FakeModel, Any], stop: str) -> None:
    def leave() -> weakref.ref[Any]:
        stream = both[1].generate("" if stop == "failed" else "a")
        with contextlib.suppress(EmptyPromptError):
            _ = stream.text() if stop in ("read", "failed") else next(stream)
        if stop == "closed":
            stream.close()
        return weakref.ref(stream)

    left = leave()
    gc.collect()
    assert left() is None


# --------------------------------------------------------------------------- label sentences


def test_an_encoder_is_the_same_over_the_wire(serving: Serving) -> None:
    own = FakeEncoder()
    with core.load_model(serving(encoder=FakeEncoder())) as model:
        assert compares_sentences(model)
        assert not isinstance(model, core.Submitting)
        for sentence in ("This text is about {label}.", "the {label}"):
            options = core.GenerateConfig(labels=("river", "hill"), label_sentence=sentence)
            rows, wanted = model.classify(PROMPTS, options), own.classify(PROMPTS, options)
            assert [row.probabilities for row in rows] == [row.probabilities for row in wanted]
            assert [type(row.error) for row in rows] == [type(row.error) for row in wanted]
            assert isinstance(model, core.ClassifyStreaming)
            assert [row.label for row in model.classify_iter(PROMPTS, options)] == [
                row.label for row in wanted
            ]
        assert isinstance(model, core.HiddenStates)
        [state], [alone] = model.hidden_states(["a river"]), own.hidden_states(["a river"])
        assert state.states == alone.states

        with pytest.raises(UnsupportedOperationError, match="classify"):
            model.classify(PROMPTS)
        with pytest.raises(UnsupportedOperationError, match="generate"):
            model.generate("a river")
        with pytest.raises(UnsupportedOptionError, match="label_prefix"):
            model.classify(PROMPTS, labels=LABELS, label_prefix="")
        with pytest.raises(UnsupportedOptionError, match="temperature"):
            model.classify(PROMPTS, labels=LABELS, temperature=1.0)


def test_a_language_model_over_the_wire_refuses_a_label_sentence(
    both: tuple[FakeModel, Any],
) -> None:
    _, model = both
    assert not compares_sentences(model)
    with pytest.raises(UnsupportedOptionError, match="label_sentence"):
        model.classify(PROMPTS, labels=LABELS, label_sentence="On {label}.")
