"""``/v1/embeddings``: OpenAI's request and answer, of encoders and language models."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import core
from core.testing import FakeEncoder, FakeModel
from core_server import Served, create_app

TEXTS = ["the sun", "the moon"]


@pytest.fixture(params=[FakeEncoder, FakeModel])
def model(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture
def client(model: Any) -> Iterator[TestClient]:
    served = Served("fake", model, capabilities=model.capabilities, backend="fake")
    with TestClient(create_app([served])) as c:
        yield c


def states(model: Any, texts: list[str]) -> list[list[float]]:
    return [result.vectors[0].tolist() for result in model.hidden_states(texts)]


def test_an_embedding_is_the_last_hidden_state(client: TestClient, model: Any) -> None:
    reply = client.post("/v1/embeddings", json={"model": "fake", "input": TEXTS})
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert [item["embedding"] for item in body["data"]] == states(model, TEXTS)
    assert [(item["object"], item["index"]) for item in body["data"]] == [
        ("embedding", 0),
        ("embedding", 1),
    ]
    assert (body["object"], body["model"]) == ("list", "fake")
    tokens = sum(map(len, TEXTS))
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    [alone] = client.post("/v1/embeddings", json={"input": TEXTS[1]}).json()["data"]
    assert alone["embedding"] == body["data"][1]["embedding"]


def test_base64_has_the_same_numbers(client: TestClient, model: Any) -> None:
    body = {"model": "fake", "input": TEXTS, "encoding_format": "base64", "user": "u"}
    data = client.post("/v1/embeddings", json=body).json()["data"]
    numbers = [array("f", base64.b64decode(item["embedding"])).tolist() for item in data]
    assert numbers == states(model, TEXTS)
    body |= {"encoding_format": "float", "dimensions": model.info.hidden_size}
    assert client.post("/v1/embeddings", json=body).status_code == 200


def test_the_client_of_openai_reads_them(model: Any, listening: Any) -> None:
    openai = pytest.importorskip("openai")
    served = Served("fake", model, capabilities=model.capabilities, backend="fake")
    with (
        listening(served) as (host, port),
        openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key="x", max_retries=0) as client,
    ):
        answer = client.embeddings.create(model="fake", input=TEXTS)  # base64, decoded
        assert [item.embedding for item in answer.data] == states(model, TEXTS)
        assert answer.usage.total_tokens == sum(map(len, TEXTS))
        one = client.embeddings.create(model="fake", input=TEXTS[0], encoding_format="float")
        assert one.data[0].embedding == answer.data[0].embedding
        with pytest.raises(openai.BadRequestError, match="prompt"):
            client.embeddings.create(model="fake", input="x" * 5000)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": []}, "input: 0 texts"),
        ({"input": [1, 2]}, "Token ids are not supported"),
        ({"input": [[1, 2]]}, "Token ids are not supported"),
        ({"input": None}, "input: This field is required"),
        ({"input": ["a", True]}, "input"),
        ({"input": ["a", ""]}, "prompt is empty"),
        ({"encoding_format": "int8"}, "Expected float or base64"),
        ({"dimensions": 3}, "dimensions: This model's embeddings have"),
        ({"layers": [0]}, "Unknown field"),
    ],
)
def test_a_bad_request_names_its_field(
    client: TestClient, change: dict[str, object], message: str
) -> None:
    reply = client.post("/v1/embeddings", json={"input": "a", **change})
    assert reply.status_code == 400, reply.text
    assert message in reply.json()["error"]["message"]


def test_a_model_without_hidden_states_is_refused() -> None:
    served = Served("x", FakeModel(), capabilities={core.Capability.GENERATE}, backend="plain")
    with TestClient(create_app([served])) as client:
        reply = client.post("/v1/embeddings", json={"input": "a"})
    assert reply.status_code == 400
    assert "'plain' does not support embeddings" in reply.json()["error"]["message"]
