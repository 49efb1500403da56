"""Options of requests for a chat template: variables, a continued turn, names of speakers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Unpack

import pytest
from starlette.testclient import TestClient

from core.options import ChatOptions, GenerateConfig, resolve_generate
from core.protocols import TokenStream
from core.types import Conversation
from core_server import Served, Settings, create_app
from core_server.running import _defaults
from tests.thinker import Thinker

HI = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "Yes, "}
OFF = {"enable_thinking": False}


class Repeating(Thinker):
    """A model that thinks, and repeats its prompt."""

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        request = resolve_generate(config, options, "chat")
        return self.generate(str(self.render_chat(messages, request)), request)


@contextmanager
def clients(defaults: GenerateConfig | None = None) -> Iterator[TestClient]:
    def first(prompt: str, labels: Any) -> str:
        return str(labels[0])

    served = Served("m", Repeating(lambda prompt: f"|{prompt}", labels=first), defaults=defaults)
    with TestClient(create_app([served], Settings(chat=True))) as client:
        yield client


@pytest.fixture
def client() -> Iterator[TestClient]:
    with clients() as client:
        yield client


def text(client: TestClient, *turns: object, **more: object) -> str:
    body = {"model": "m", "messages": [*turns], **more}
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"])


def refusal(client: TestClient, *turns: object, **more: object) -> tuple[str, str]:
    reply = client.post("/v1/chat/completions", json={"model": "m", "messages": turns, **more})
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    return error["param"] or "", error["message"]


def test_variables_reach_the_template(client: TestClient) -> None:
    thinking = "|<user>hi<end><assistant><think>"
    assert text(client, HI) == text(client, HI, chat_template_kwargs={}) == thinking
    assert text(client, HI, chat_template_kwargs=OFF) == f"{thinking}</think>"
    assert text(client, HI, enable_thinking=False) == f"{thinking}</think>"
    assert text(client, HI, enable_thinking=None, chat_template_kwargs=None) == thinking
    assert text(client, HI, enable_thinking=True, chat_template_kwargs={}) == thinking


@pytest.mark.parametrize(
    ("more", "param", "words"),
    [
        ({"chat_template_kwargs": {"tone": 1}}, "", "'tone' is not valid"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs", "must be an object"),
        ({"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs", "other than messages"),
        ({"enable_thinking": "no"}, "enable_thinking", "must be true or false"),
        (
            {"enable_thinking": True, "chat_template_kwargs": OFF},
            *("enable_thinking", "contradicts"),
        ),
        ({"continue_final_message": True}, "", "the assistant's, not the user's"),
        ({"add_generation_prompt": False}, "add_generation_prompt", "continue_final_message"),
    ],
)
def test_what_the_template_cannot_be_told_is_refused(
    client: TestClient, more: Any, param: str, words: str
) -> None:
    error = refusal(client, HI, **more)
    assert (error[0], words in error[1]) == (param, True), error


def test_the_last_turn_is_continued(client: TestClient) -> None:
    turns = "|<user>hi<end><assistant>Yes, "
    for more in ({}, {"add_generation_prompt": False}):
        assert text(client, HI, SAID, continue_final_message=True, **more) == turns
    for more in ({}, {"add_generation_prompt": True}, {"continue_final_message": False}):
        assert text(client, HI, SAID, **more) == f"{turns}<end><assistant><think>"
    both = {"continue_final_message": True, "add_generation_prompt": True}
    assert refusal(client, HI, SAID, **both)[0] == "add_generation_prompt"


def test_a_name_that_the_template_has_no_place_for_is_refused(client: TestClient) -> None:
    assert "no place for a message's name ('ann')" in refusal(client, {**HI, "name": "ann"})[1]


def test_the_prompt_that_is_shown_is_the_one_that_is_asked(client: TestClient) -> None:
    for more in ({}, {"chat_template_kwargs": OFF}, {"enable_thinking": False}):
        body = {"messages": [HI], **more}
        shown = client.post("/apply-template", json=body).json()["prompt"]
        assert f"|{shown}" == text(client, HI, **more)
        tokens = client.post("/tokenize", json=body).json()
        assert tokens["count"] == len(shown) - len("<user>") - len("<end><assistant>") + 3
    body = {"messages": [HI, SAID], "continue_final_message": True}
    assert client.post("/apply-template", json=body).json()["prompt"].endswith("Yes, ")


def test_questions_are_asked_outside_of_thoughts(client: TestClient) -> None:
    question = {"type": "choice", "name": "q", "instructions": "Which?"}
    question["choices"] = [{"value": "a"}, {"value": "b"}]  # type: ignore[assignment]
    body = {"model": "m", "input": "text", "questions": [question]}
    reply = client.post("/v1/decisions", json=body)
    assert reply.json()["answers"][0]["choice"] == "a"

    defaults = GenerateConfig(chat_template_kwargs={"enable_thinking": True})
    with clients(defaults) as thinking:
        refused = thinking.post("/v1/decisions", json=body)
    assert refused.status_code == 400
    assert "within the model's thoughts" in refused.text


def test_what_a_server_gives_the_template_by_default() -> None:
    with clients(_defaults('{"enable_thinking": false}', None)) as client:
        assert text(client, HI).endswith("</think>")
        assert text(client, HI, enable_thinking=True).endswith("<think>")
    with clients(_defaults(None, False)) as client:
        assert text(client, HI).endswith("</think>")
    assert _defaults(None, None) == GenerateConfig()


@pytest.mark.parametrize(
    ("variables", "thinking"), [("{", None), ("[1]", None), ('{"enable_thinking": true}', False)]
)
def test_wrong_defaults_are_usage_errors(variables: str, thinking: bool | None) -> None:
    import click

    with pytest.raises(click.BadParameter):
        _defaults(variables, thinking)
