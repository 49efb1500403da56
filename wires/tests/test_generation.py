"""Chat completions and completions: what is read, what is refused by name, and the answers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from core.errors import (
    EmptyPromptError,
    GenerationCancelled,
    GenerationTimeout,
    LabelError,
    ModelClosedError,
    OutOfMemoryError,
    PromptTooLongError,
    UnsupportedOptionError,
)
from core.options import GenerateConfig
from core.testing import FakeModel
from core.types import BatchResult, GenerateMetrics, Message, Token
from core_wires.chunks import Chunks
from core_wires.completions import NO_EXTRAS, Extras, finish_reason, response
from core_wires.errors import OPENAI, SYSTEM_ONE, WireError, refusal
from core_wires.generation import GenerationRequest, read_chat, read_completion
from core_wires.usage import Usage

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
TEXT: dict[str, Any] = {"model": "m", "prompt": "Once"}


def test_messages_with_strings_and_with_parts() -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c", "refusal": None, "tool_calls": []},
    ]
    request = read_chat({"model": "m", "messages": messages})
    assert request.messages == (
        Message("system", "Be brief."),
        Message("user", "a\nb"),
        Message("assistant", "c"),
    )
    assert request.options == {}
    assert request.config() == GenerateConfig()


def test_options_become_those_of_generate() -> None:
    body = {
        **CHAT,
        **{"max_completion_tokens": 5, "max_tokens": 5, "temperature": 1, "top_p": 0.5},
        **{"stop": "\n", "seed": 3, "logprobs": True, "top_logprobs": 0, "top_k": -1, "min_p": 0.1},
        **{"repetition_penalty": 1.5, "n": 1, "presence_penalty": 0.0, "frequency_penalty": None},
        **{"user": "u", "response_format": {"type": "text"}, "tools": [], "tool_choice": "none"},
    }
    request = read_chat(body)
    assert request.config() == GenerateConfig(
        max_tokens=5,
        temperature=1.0,
        top_p=0.5,
        stop=("\n",),
        seed=3,
        return_logprobs=True,
        min_p=0.1,
        repeat_penalty=1.5,
    )
    # What a body does not say is the caller's to say.
    assert read_chat(CHAT).config(GenerateConfig(max_tokens=7)).max_tokens == 7
    assert request.config(GenerateConfig(max_tokens=7)).max_tokens == 5


def test_options_of_the_chat_template() -> None:
    assert read_chat({**CHAT, "chat_template_kwargs": {}, "enable_thinking": None}).options == {}
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    for body in (off, {"enable_thinking": False}, {**off, "enable_thinking": False}):
        assert read_chat({**CHAT, **body}).options == off
    continued = read_chat({**CHAT, "continue_final_message": True, "add_generation_prompt": False})
    assert continued.options == {"continue_final_message": True}

    # A request's variables go over the caller's, each by its name.
    usual = GenerateConfig(chat_template_kwargs={"enable_thinking": True, "tone": "dry"})
    variables = read_chat({**CHAT, **off}).config(usual).chat_template_kwargs
    assert variables == {"enable_thinking": False, "tone": "dry"}
    assert read_chat(CHAT).config(usual) == usual


@pytest.mark.parametrize(
    "neutral",
    [
        *({"skip_special_tokens": True}, {"ignore_eos": False}, {"stop_token_ids": []}),
        *({"extra_body": {}}, {"cache_prompt": True}, {"keep_alive": "5m"}),
    ],
)
def test_what_other_servers_ask_for_nothing_with_is_let_through(neutral: Any) -> None:
    assert read_chat({**CHAT, **neutral}) == read_chat(CHAT)
    assert read_completion({**TEXT, **neutral}) == read_completion(TEXT)


@pytest.mark.parametrize(
    "asking", [{"skip_special_tokens": False}, {"ignore_eos": True}, {"stop_token_ids": [3]}]
)
def test_what_they_ask_for_something_with_is_refused(asking: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="is not supported"):
        read_chat({**CHAT, **asking})


def test_a_completion_has_one_prompt_or_several() -> None:
    for prompt in ("Once", ["Once"]):
        request = read_completion({**TEXT, "prompt": prompt, "stop": ["a", "b"], "logprobs": 0})
        assert (request.kind, request.prompt) == ("completion", "Once")
        assert request.options == {"stop": ("a", "b"), "return_logprobs": True}
    several = read_completion({**TEXT, "prompt": ["Once", "Twice"], "n": 2, "echo": True})
    assert (several.prompts, several.answers) == (("Once", "Twice"), 4)
    results = [BatchResult((Token(3, str(n)),)) for n in range(4)]
    choices: Any = response(several, *results, id="c", created=0, model="m")["choices"]
    assert [choice["text"] for choice in choices] == ["Once0", "Once1", "Twice2", "Twice3"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]


def test_a_stream_is_told() -> None:
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    assert (read_chat(body).stream, read_chat(body).include_usage) == (True, True)
    assert not read_chat(CHAT).stream


IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": "x", "weight": 0}]},
            "messages[0].weight",
        ),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]},
            "messages[0].tool_calls",
        ),
        ({"messages": [IMAGE]}, "messages[0].content[0]"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": True}, "n"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"functions": [{}]}, "functions"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": -1}, "frequency_penalty"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"top_logprobs": 3, "max_tokens": 1}, "top_logprobs"),
        ({"top_logprobs": 3, "logprobs": True, "max_tokens": 2}, "top_logprobs"),
        ({"top_logprobs": 21, "logprobs": True, "max_tokens": 1}, "top_logprobs"),
        ({"top_logprobs": True, "logprobs": True, "max_tokens": 1}, "top_logprobs"),
        ({"best_of": 1}, "best_of"),
        ({"echo": True}, "echo"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"max_token": 3}, "max_token"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 2, "max_completion_tokens": 3}, "max_completion_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"seed": -1}, "seed"),
        ({"stop": [""]}, "stop"),
        ({"stop": [1]}, "stop[0]"),
        ({"logprobs": 1}, "logprobs"),
        ({"model": None}, "model"),
    ],
)
def test_what_cannot_be_honoured_in_a_chat_is_refused_by_name(
    change: dict[str, object], param: str
) -> None:
    with pytest.raises(WireError) as caught:
        read_chat({**CHAT, **change})
    error: Any = caught.value.body["error"]
    assert caught.value.status == 400
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert param in str(caught.value)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a"] * 100, "n": 100}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"logprobs": 5}, "logprobs"),
        ({"best_of": 2}, "best_of"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"logprobs": 5, "max_tokens": 2}, "logprobs"),
        ({"logprobs": 5, "max_tokens": 1, "echo": True}, "logprobs"),
        ({"logprobs": 21, "max_tokens": 1}, "logprobs"),
        ({"echo": "yes"}, "echo"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"suffix": "end"}, "suffix"),
        ({"messages": []}, "messages"),
    ],
)
def test_so_it_is_in_a_completion(change: dict[str, object], param: str) -> None:
    with pytest.raises(WireError) as caught:
        read_completion({**TEXT, **change})
    error: Any = caught.value.body["error"]
    assert error["param"] == param


def completed(body: dict[str, object]) -> tuple[GenerationRequest, BatchResult, Usage]:
    """What a caller does with a completion."""
    request = read_completion(body)
    model = FakeModel("Hi.")
    [result] = model.batch_generate([request.prompt], request.config())
    return request, result, Usage.of(model.metrics)


def test_a_completion_out() -> None:
    request, result, usage = completed({**TEXT, "logprobs": 0, "max_tokens": 2})
    assert response(request, result, id="cmpl-1", created=5, model="mine", usage=usage) == {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 5,
        "model": "mine",
        "choices": [
            {
                "index": 0,
                "text": "Hi",
                "logprobs": {
                    "tokens": ["H", "i"],
                    "token_logprobs": [token.logprob for token in result.tokens],
                    "top_logprobs": None,
                    "text_offset": [0, 1],
                },
                "finish_reason": "length",
            }
        ],
        "usage": {
            "prompt_tokens": 4,
            "completion_tokens": 2,
            "total_tokens": 6,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def test_a_chat_out() -> None:
    tokens = (Token(1, "½", -0.5), Token(2, "!", -math.inf))
    result = BatchResult(tokens)
    body = response(read_chat({**CHAT, "logprobs": True}), result, id="c", created=0, model="m")
    choices: Any = body["choices"]
    assert choices[0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "½!", "refusal": None},
        "logprobs": {
            "content": [
                {"token": "½", "logprob": -0.5, "bytes": [0xC2, 0xBD], "top_logprobs": []},
                {"token": "!", "logprob": -9999.0, "bytes": [0x21], "top_logprobs": []},
            ],
            "refusal": None,
        },
        "finish_reason": "stop",
    }
    assert body["object"] == "chat.completion"
    plain = response(read_chat(CHAT), result, id="c", created=0, model="m")
    choices = plain["choices"]
    assert choices[0]["logprobs"] is None
    metrics = GenerateMetrics(prompt_tokens=9, cached_prompt_tokens=4, generated_tokens=2)
    whole = response(read_chat(CHAT), result, id="c", created=0, model="m", usage=Usage.of(metrics))
    assert whole["usage"] == {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_several_answers_and_what_stands_beside_them() -> None:
    request = read_completion({**TEXT, "n": 2, "best_of": 2, "echo": True, "logprobs": 0})
    assert (request.n, request.echo, request.generates) == (2, True, True)
    extras = Extras(prompt=(Token(1, "On"), Token(2, "ce", -2.0)))
    results = [BatchResult((Token(3, word, -1.0),)) for word in (" more", " again")]
    body = response(request, *results, id="c", created=0, model="m", extras=[extras])
    choices: Any = body["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    assert [choice["text"] for choice in choices] == ["Once more", "Once again"]
    assert choices[1]["logprobs"] == {
        "tokens": ["On", "ce", " again"],
        "token_logprobs": [None, -2.0, -1.0],
        "top_logprobs": None,
        "text_offset": [0, 2, 4],
    }
    usage: Any = body["usage"]
    assert usage["completion_tokens"] == 2


def test_a_prompt_alone_may_be_echoed() -> None:
    request = read_completion({**TEXT, "echo": True, "max_tokens": 0})
    assert not request.generates
    assert "max_tokens" not in request.options


def test_the_likeliest_tokens_stand_beside_the_first() -> None:
    extras = Extras(likeliest=(Token(1, "a", -0.5), Token(2, "b", -1.0), Token(3, "b", -3.0)))
    result = BatchResult((Token(4, "c", -5.0),), "length")
    chat = read_chat({**CHAT, "logprobs": True, "top_logprobs": 3, "max_tokens": 1})
    choices: Any = response(chat, result, id="c", created=0, model="m", extras=[extras])["choices"]
    [token] = choices[0]["logprobs"]["content"]
    assert (token["token"], token["logprob"]) == ("c", -5.0)
    assert [(top["token"], top["logprob"]) for top in token["top_logprobs"]] == [
        *(("a", -0.5), ("b", -1.0), ("b", -3.0)),
    ]
    text = read_completion({**TEXT, "logprobs": 3, "max_tokens": 1})
    choices = response(text, result, id="c", created=0, model="m", extras=[extras])["choices"]
    # By text, and of those that read alike the likeliest; the chosen one is there as well.
    assert choices[0]["logprobs"]["top_logprobs"] == [{"a": -0.5, "b": -1.0, "c": -5.0}]


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_the_chunks_of_several_answers_are_the_answers(kind: str) -> None:
    """Whatever order their tokens come in, each answer's chunks make what it is in whole."""
    options: dict[str, object] = {"n": 2, "logprobs": True if kind == "chat" else 0}
    request = (
        read_chat({**CHAT, **options})
        if kind == "chat"
        else read_completion({**TEXT, **options, "echo": True})
    )
    extras = NO_EXTRAS if kind == "chat" else Extras(prompt=(Token(1, "On"), Token(2, "ce", -2.0)))
    answers = [[Token(3, "a", -1.0), Token(4, "b", -2.0)], [Token(5, "cc", -3.0)]]
    chunks = Chunks(request, "c", 0, "m", [extras])
    bodies = [*chunks.begin()]
    bodies += [chunks.token(answers[1][0], 1), chunks.token(answers[0][0], 0)]
    bodies += [chunks.end("stop", 1), chunks.token(answers[0][1], 0), chunks.end("length", 0)]

    results = [
        BatchResult(tuple(answers[0]), "length"),
        BatchResult(tuple(answers[1]), "stop"),
    ]
    whole: Any = response(request, *results, id="c", created=0, model="m", extras=[extras])
    for index in range(2):
        parts: Any = [b["choices"][0] for b in bodies if b["choices"][0]["index"] == index]  # type: ignore[index]
        choice = whole["choices"][index]
        assert parts[-1]["finish_reason"] == choice["finish_reason"]
        if kind == "chat":
            assert parts[0]["delta"]["role"] == "assistant"
            text = "".join(part["delta"].get("content", "") for part in parts)
            assert text == choice["message"]["content"]
            streamed = [
                t for part in parts if part["logprobs"] for t in part["logprobs"]["content"]
            ]
            assert streamed == choice["logprobs"]["content"]
        else:
            assert "".join(part["text"] for part in parts) == choice["text"]
            for column in ("tokens", "token_logprobs", "text_offset"):
                streamed = [
                    t for part in parts if part["logprobs"] for t in part["logprobs"][column]
                ]
                assert streamed == choice["logprobs"][column]


def test_a_failed_row_raises_its_refusal() -> None:
    failed = BatchResult((), "error", PromptTooLongError(9, 5))
    with pytest.raises(WireError, match="9 tokens") as caught:
        response(read_chat(CHAT), failed, id="c", created=0, model="m")
    error: Any = caught.value.body["error"]
    assert error["code"] == "context_length_exceeded"
    with pytest.raises(WireError, match="cancelled"):
        finish_reason("cancelled")


@pytest.mark.parametrize(
    ("error", "openai", "systemone"),
    [
        (EmptyPromptError(), 400, 422),
        (LabelError("two alike"), 400, 422),
        (UnsupportedOptionError("top_k", "b"), 400, 422),
        (GenerationTimeout(3), 504, 504),
        (GenerationCancelled(), 499, 499),
        (OutOfMemoryError("full"), 503, 503),
        (ModelClosedError(), 503, 503),
        (RuntimeError("/secret/path"), 500, 500),
    ],
)
def test_errors_of_a_model_have_a_status(error: Exception, openai: int, systemone: int) -> None:
    assert refusal(OPENAI, error).status == openai
    assert refusal(SYSTEM_ONE, error).status == systemone
    assert "secret" not in str(refusal(OPENAI, error).body)
    refused = refusal(OPENAI, error)
    assert refusal(SYSTEM_ONE, refused) is refused
