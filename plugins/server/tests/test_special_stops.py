"""``stop`` over the wires may be the text of a special token, which clients know from templates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import core
from core_conformance.reference import Reference, write_model
from core_conformance.reference.vocabulary import SPECIAL_TEXTS
from core_server import Served, create_app

HOT: dict[str, Any] = {"temperature": 1e30, "max_tokens": 40}  # any token is as likely


@pytest.fixture
def model(tmp_path: Path) -> Iterator[core.TextModel]:
    with Reference().load_model(write_model(tmp_path), core.LoadConfig()) as loaded:
        yield loaded


def drawn(stream: core.TokenStream) -> tuple[str, str, str] | None:
    """The text, its part before the first special token, and that token's text."""
    tokens = list(stream)
    named = [place for place, token in enumerate(tokens) if token.id in SPECIAL_TEXTS]
    if not named or not named[0]:
        return None
    before = "".join(token.text for token in tokens[: named[0]])
    return "".join(token.text for token in tokens), before, SPECIAL_TEXTS[tokens[named[0]].id]


@pytest.mark.parametrize("chat", [False, True])
def test_a_stop_that_is_a_special_token_ends_the_answer(model: core.TextModel, chat: bool) -> None:
    turns = [{"role": "user", "content": "Hello"}]

    def stream(seed: int) -> core.TokenStream:
        options = {**HOT, "seed": seed}
        return model.chat(turns, **options) if chat else model.generate("Hello", **options)

    seed, parts = next((s, it) for s in range(100) if (it := drawn(stream(s))) is not None)
    text, before, mark = parts
    prompt = {"messages": turns} if chat else {"prompt": "Hello"}
    path = "/v1/chat/completions" if chat else "/v1/completions"
    body = {"model": "reference", "seed": seed, **prompt, **HOT}

    served = Served("reference", model, capabilities=Reference().capabilities)
    with TestClient(create_app([served])) as client:
        for stop, left in (([mark, "never"], before), (["never"], text), ([], text)):
            reply = client.post(path, json={**body, "stop": stop})
            assert reply.status_code == 200, reply.text
            choice = reply.json()["choices"][0]
            assert (choice["message"]["content"] if chat else choice["text"]) == left
            assert choice["finish_reason"] == "stop" or stop != [mark, "never"]
