"""The chat model: options, streams, usage, callbacks, cancel and errors, sync and async."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate

import core
from core.options import ChatOptions
from core.testing import FakeModel
from core_langchain import ChatCore

WAIT = 60.0  # seconds against a hang


def chat(answers: Any = "Hello there, you.", **fields: Any) -> tuple[ChatCore, FakeModel]:
    model = FakeModel(answers, errors=fields.pop("errors", None), **fields.pop("model", {}))
    return ChatCore(model="fake", loaded=model, **fields), model


class Endless(FakeModel):
    """Answers without end, until it is cancelled: ``began`` and ``ended`` are events."""

    def __init__(self) -> None:
        super().__init__("x")
        self.began, self.ended = threading.Event(), threading.Event()

    def chat(self, messages: Any, *config: Any, **options: Any) -> Any:
        return _EndlessStream(self, options["cancel"])


class _EndlessStream(core.TokenStreamBase):
    def __init__(self, model: Endless, cancel: core.CancelToken) -> None:
        super().__init__()
        self._model, self._cancel = model, cancel

    finish_reason = None
    metrics = core.GenerateMetrics()

    def next_token(self) -> core.Token:
        self._model.began.set()
        if self._cancel.is_set():
            self._model.ended.set()
            raise core.GenerationCancelled
        return core.Token(1, "x")

    def close(self) -> None:
        self._model.ended.set()


# ------------------------------------------------------------------------ what is asked


def test_fields_are_options_and_a_call_s_own_win() -> None:
    asked, model = chat(max_tokens=5, temperature=0.5, seed=7, stop=["!"], top_p=0.9)
    asked.invoke("hi")
    asked.invoke("hi", stop=["?"], max_tokens=3, seed=8)
    asked.bind(min_p=0.25).with_config(tags=["a"]).invoke("hi")
    first, second, third = (call.config for call in model.calls)
    assert (first.max_tokens, first.temperature, first.seed, first.top_p) == (5, 0.5, 7, 0.9)
    assert first.stop == ("!",)
    assert (second.stop, second.max_tokens, second.seed) == (("?",), 3, 8)
    assert (third.min_p, third.seed) == (0.25, 7)


def test_every_option_of_core_is_a_field_but_cancel() -> None:
    assert ChatOptions.__annotations__.keys() - ChatCore.model_fields.keys() == {"cancel"}


def test_a_turn_of_the_assistant_is_continued() -> None:
    asked, model = chat(continue_final_message=True)
    asked.invoke([HumanMessage("hi"), AIMessage("Yes, ")])
    assert model.calls[-1].config.continue_final_message
    with pytest.raises(core.InvalidOptionError, match="'tone' is not valid"):
        asked.invoke("hi", chat_template_kwargs={"tone": 1}, continue_final_message=False)


def test_what_core_does_not_know_is_refused_by_name() -> None:
    asked, model = chat()
    with pytest.raises(ValueError, match="temprature"):
        ChatCore(model="fake", temprature=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Did you mean 'temperature'"):
        asked.invoke("hi", temprature=1.0)
    with pytest.raises(core.InvalidOptionError, match="max_tokens=0"):
        asked.invoke("hi", max_tokens=0)
    with pytest.raises(NotImplementedError):
        asked.bind_tools([])
    assert model.calls == []


def test_the_conversation_as_core_reads_it() -> None:
    asked, model = chat()
    template = ChatPromptTemplate([("system", "Be {how}."), ("human", "{question}")])
    (template | asked).invoke({"how": "brief", "question": "Why?"})
    asked.invoke(
        [
            SystemMessage("S"),
            HumanMessage([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
            AIMessage("c"),
            HumanMessage("d", name="Ada"),
        ]
    )
    assert model.calls[0].messages == (
        core.Message("system", "Be brief."),
        core.Message("user", "Why?"),
    )
    told = [(turn.role, turn.content) for turn in model.calls[1].messages]
    assert told == [("system", "S"), ("user", "a\nb"), ("assistant", "c"), ("user", "d")]


@pytest.mark.parametrize(
    "messages",
    [
        [HumanMessage([{"type": "image", "url": "http://x/y.png"}])],
        [HumanMessage("a"), AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}])],
        [ToolMessage("a", tool_call_id="1")],
        [],
    ],
)
def test_what_is_no_text_is_refused(messages: Any) -> None:
    asked, model = chat()
    with pytest.raises(core.RequestError):
        asked.invoke(messages)
    assert model.calls == []


# ------------------------------------------------------------------------ what is answered


def test_usage_and_the_reason_of_the_end() -> None:
    asked, _ = chat()
    answer = asked.invoke("hi", max_tokens=5)
    assert answer.content == "Hello"
    assert answer.response_metadata["finish_reason"] == "length"
    assert answer.response_metadata["model_name"] == "fake"
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 5
    assert answer.usage_metadata["input_tokens"] > 0
    assert asked.invoke("hi").response_metadata["finish_reason"] == "stop"


def test_log_probabilities_where_they_are_asked_for() -> None:
    asked, _ = chat("abc")
    answer = asked.invoke("hi", return_logprobs=True)
    told = answer.response_metadata["logprobs"]["content"]
    assert [each["token"] for each in told] == ["a", "b", "c"]
    assert all(each["logprob"] <= 0 for each in told)
    assert "logprobs" not in asked.invoke("hi").response_metadata


class Heard(BaseCallbackHandler):
    """Notes what callbacks are told."""

    raise_error = True

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.errors: list[BaseException] = []

    def on_llm_new_token(self, token: Any, **_: Any) -> None:
        self.tokens.append(token)

    def on_llm_error(self, error: BaseException, **_: Any) -> None:
        self.errors.append(error)


@pytest.mark.parametrize("streaming", [None, False, True])
def test_callbacks_hear_each_token_once(streaming: bool | None) -> None:
    asked, _ = chat("abc", streaming=streaming)
    heard = Heard()
    parts = [part.content for part in asked.stream("hi", {"callbacks": [heard]})]
    assert parts == (["abc"] if streaming is False else ["a", "b", "c", ""])
    assert "".join(heard.tokens) == ("" if streaming is False else "abc")
    heard.tokens.clear()
    assert asked.invoke("hi", {"callbacks": [heard]}).content == "abc"
    assert "".join(heard.tokens) == ("abc" if streaming else "")


def test_a_cache_goes_by_options_and_model() -> None:
    cache = InMemoryCache()
    asked, model = chat(cache=cache)
    for _ in range(2):
        asked.invoke("hi")
    assert len(model.calls) == 1
    other, other_model = chat(cache=cache, max_tokens=2)
    assert other.invoke("hi").content == "He"
    assert len(other_model.calls) == 1


def test_tokens_are_counted_by_the_model() -> None:
    asked, _ = chat()
    assert asked.get_num_tokens("abc") == 3


# ------------------------------------------------------------------------ errors and cancel


def failing(prompt: str) -> Exception | None:
    return core.RequestError("It cannot be read.") if "bad" in prompt else None


def test_the_error_of_one_conversation_is_its_own() -> None:
    asked, _ = chat(errors=failing)
    heard = Heard()
    config: Any = {"callbacks": [heard]}
    found = asked.batch(["good", "bad", "good"], config, return_exceptions=True)
    assert [getattr(each, "content", None) for each in found] == [
        "Hello there, you.",
        None,
        "Hello there, you.",
    ]
    assert isinstance(found[1], core.RequestError)
    assert heard.errors == [found[1]]
    with pytest.raises(core.RequestError):
        asked.invoke("bad")
    assert asked.with_fallbacks([chat("Other.")[0]]).invoke("bad").content == "Other."


def test_a_conversation_that_is_too_long_is_langchain_s_error_too() -> None:
    asked, _ = chat(model={"context_length": 8})
    with pytest.raises(ContextOverflowError, match="context") as caught:
        asked.invoke("x" * 100)
    assert isinstance(caught.value, core.PromptTooLongError)
    assert caught.value.limit == 8


def test_cancel_and_timeout_of_a_call() -> None:
    asked, _ = chat()
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(core.GenerationCancelled):
        asked.invoke("hi", cancel=cancel)
    with pytest.raises(core.GenerationTimeout):
        asked.bind(timeout=1e-9).invoke("hi")


def test_a_stream_that_is_left_ends() -> None:
    model = Endless()
    asked = ChatCore(model="endless", loaded=model)
    parts: Any = asked.stream("hi", cancel=threading.Event())
    assert next(parts).content == "x"
    parts.close()
    assert model.ended.wait(WAIT)


@pytest.mark.parametrize("way", ["ainvoke", "astream", "abatch"])
def test_a_task_that_is_cancelled_ends_the_work(way: str) -> None:
    model = Endless()
    asked = ChatCore(model="endless", loaded=model)

    async def read() -> None:
        if way == "astream":
            async for _ in asked.astream("hi"):
                pass
        elif way == "abatch":
            await asked.abatch(["hi", "ho"])
        else:
            await asked.ainvoke("hi")

    async def run() -> None:
        task = asyncio.create_task(read())
        assert await asyncio.to_thread(model.began.wait, WAIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(model.ended.wait, WAIT)

    asyncio.run(run())


def test_async_says_what_sync_says() -> None:
    asked, _ = chat("abc")

    async def both() -> tuple[str, list[Any]]:
        whole = await asked.ainvoke("hi")
        return whole.text, [part.content async for part in asked.astream("hi")]

    assert asyncio.run(both()) == ("abc", ["a", "b", "c", ""])


def test_a_key_among_the_load_options_is_masked() -> None:
    """Chains are traced and shown, and caches in files go by what identifies a model."""
    chat: Any = ChatCore(model="m", load_options={"options": {"api_key": "sk-MARKED"}})
    shown = repr(chat) + str(chat) + repr(chat._identifying_params) + repr(chat.model_dump())
    assert "sk-MARKED" not in shown
    assert chat.load_options["options"]["api_key"].reveal() == "sk-MARKED"
