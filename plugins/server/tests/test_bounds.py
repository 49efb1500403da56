"""Products of what one request has: refused by the limit's name, before they are built."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

import core
import core_tasks
from core.protocols import Capability
from core.testing import FakeModel
from core_server import Served, Settings, bounds, create_app

NDJSON = {"Content-Type": "application/x-ndjson"}
NAMES = [f"t{number}" for number in range(400)]


class Asked(FakeModel):
    """A model that notes what it is asked, and refuses to be asked for much."""

    def __init__(self) -> None:
        even: Any = lambda prompt, labels: dict.fromkeys(labels, 0.5 / len(labels))  # noqa: E731
        super().__init__("Hi", labels=even, context_length=2_000)
        self.rows: list[int] = []
        self.encoded: list[int] = []

    def classify(self, prompts: Any, config: Any = None, /, **options: Any) -> Any:
        self.rows.append(len(prompts))
        return super().classify(prompts, config, **options)

    def encode(self, text: str) -> list[int]:
        self.encoded.append(len(text))
        return super().encode(text)

    def generate_tokens(self, *_: Any, **__: Any) -> Any:
        raise AssertionError

    stream_tokens = generate_tokens
    hidden_states = generate_tokens

    def score_tokens(self, prompts: Any, continuations: Any, config: Any = None, /) -> Any:
        self.rows.append(len(prompts))
        return [core.Score(-1.0, (-1.0,)) for _ in prompts]

    def score(self, prompts: Any, continuations: Any, config: Any = None, /) -> Any:
        raise AssertionError


@pytest.fixture
def model() -> Asked:
    return Asked()


@pytest.fixture
def client(model: Asked) -> Iterator[TestClient]:
    served = Served("m", model, backend="fake", capabilities=frozenset(Capability))
    with TestClient(create_app([served])) as client:
        yield client


def refused(client: TestClient, path: str, body: Any, *words: str, status: int = 400) -> None:
    reply = client.post(path, json=body)
    assert reply.status_code == status, reply.text
    assert all(word in reply.text for word in words), reply.text
    memory = client.get("/metrics").text
    assert "core_memory_bytes 0.0" in memory  # all of it was given back


def called(client: TestClient, operation: str, arguments: Any, options: Any = None) -> Any:
    body = {"arguments": arguments, "options": options or {}}
    return client.post(f"/v1/core/{operation}", json=body)


# --------------------------------------------------------------------------- classifications


@pytest.mark.parametrize("path", ["/v1/classify", "/classify"])
def test_texts_and_labels_are_counted_together(client: TestClient, model: Asked, path: str) -> None:
    body = {"texts": NAMES, "labels": NAMES, "mode": "many", "template": "{text} {label}"}
    refused(client, path, body, "400 texts x 400 labels", "160,000 rows", "at most 100,000 rows")
    assert model.rows == []


def test_as_many_rows_as_there_may_be_are_answered(
    client: TestClient, model: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_ROWS", 40)
    body = {"labels": NAMES[:8], "mode": "many", "template": "{text} {label}"}
    reply = client.post("/v1/classify", json=body | {"texts": NAMES[:5]})
    assert len(reply.json()["data"]) == 5
    assert sum(model.rows) == 40
    refused(client, "/v1/classify", body | {"texts": NAMES[:6]}, "48 rows", "40 rows")


def test_the_probabilities_of_all_labels_are_counted(client: TestClient, model: Asked) -> None:
    body = {"texts": ["a"] * 6_000, "labels": NAMES}
    refused(client, "/v1/classify", body, "6,000 texts x 400 labels", "2,000,000 probabilities")
    assert model.rows == []


@pytest.mark.parametrize(
    "change",
    [
        {"texts": ["a"] * 100, "template": "w" * 700_000 + "{text}"},
        {"texts": ["a" * 700_000], "template": "{text}" * 100},
        {"texts": ["a" * 200_000], "mode": "many", "template": "{text}{label}", "labels": NAMES},
        {"texts": [], "level": "content-free", "template": "{text}" + "w" * 4_000_000 + "{label}"}
        | {"labels": NAMES[:6], "mode": "many"},
    ],
)
def test_the_characters_of_all_prompts_are_counted(
    client: TestClient, model: Asked, change: dict[str, Any]
) -> None:
    body = {"labels": ["x", "y"]} | change
    refused(client, "/v1/classify", body, "characters of prompts", "64,000,000")
    assert model.rows == []


def test_the_fit_of_level_l0_is_counted(client: TestClient, model: Asked) -> None:
    task = {"texts": ["a"], "level": "content-free", "template": "{text} {label}", "mode": "many"}
    many = [f"label {number}" for number in range(2_500)]
    refused(client, "/v1/classify", task | {"labels": many}, "41 texts", "2,500 labels")
    assert model.rows == []
    one = {"labels": NAMES, "mode": "one", "template": "{text} is"}
    reply = client.post("/v1/classify", json=task | one)
    assert reply.status_code == 200
    assert sum(model.rows) == 41  # not one for each label


def test_labels_are_bounded_in_characters(client: TestClient, model: Asked) -> None:
    labels = [f"{name} " + "long " * 1_000 for name in NAMES]
    refused(client, "/v1/classify", {"texts": ["a"], "labels": labels}, "characters of labels")
    reply = called(client, "classify", {"prompts": ["a"]}, {"labels": labels})
    assert reply.status_code == 400
    assert model.rows == []


def test_a_block_of_lines_is_as_small_as_its_task_is_large(
    client: TestClient, model: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are those that a request may have, however many labels are asked about."""
    task = core_tasks.Task("{text} {label}", tuple(NAMES), mode="many")
    assert bounds.rows_at_once(task, 1024) == 250
    assert bounds.rows_at_once(core_tasks.Task("{text}", ("x", "y")), 1024) == 1024
    monkeypatch.setattr(bounds, "MAX_ROWS", 40)
    head = {"labels": NAMES[:8], "mode": "many", "template": "{text} {label}"}
    lines = "".join(json.dumps(line) + "\n" for line in (head, *["a"] * 12))
    reply = client.post("/v1/classify", content=lines, headers=NDJSON)
    answers = [json.loads(line) for line in reply.text.splitlines()]
    assert [len(line["probabilities"]) for line in answers] == [8] * 12
    assert model.rows == [40, 40, 16]


def test_a_line_that_makes_too_much_fails_alone(client: TestClient) -> None:
    head = {"labels": NAMES, "mode": "many", "template": "{text} {label}"}
    lines = "".join(json.dumps(line) + "\n" for line in (head, "a", "b" * 200_000, "c"))
    reply = client.post("/v1/classify", content=lines, headers=NDJSON)
    answers = [json.loads(line) for line in reply.text.splitlines()]
    assert ["error" in line for line in answers] == [False, True, False]
    assert "characters of prompts" in answers[1]["error"]["message"]


# --------------------------------------------------------------------------- other routes


def test_the_state_counts_for_each_question(client: TestClient, model: Asked) -> None:
    question = {"type": "choice", "criteria": {"a": None, "b": None}}
    body: dict[str, Any] = {"model": "m", "state": "s" * 1_000_000}
    body |= {"questions": dict.fromkeys(NAMES, question)}
    words = ("400 questions x 1,000,000 characters", "64,000,000")
    refused(client, "/v1/systemone", body, *words, status=422)
    questions = [{"type": "predicate", "instructions": "Is it?"}] * 400
    body = {"model": "m", "input": "s" * 1_000_000, "questions": questions}
    refused(client, "/v1/decisions", body, *words)
    assert (model.rows, model.encoded) == ([], [])


def test_a_decision_that_is_too_long_is_refused_before_its_tokens_are_counted(
    client: TestClient, model: Asked
) -> None:
    questions = [{"type": "predicate", "instructions": "word " * 100_000}]
    body = {"model": "m", "input": "s", "questions": questions}
    refused(client, "/v1/decisions", body, "context")
    assert model.encoded == []


def test_items_and_ids_are_counted_together(client: TestClient, model: Asked) -> None:
    body = {"query": "a", "items": NAMES, "label_token_ids": [65] * 400}
    words = ("400 items x 400 label_token_ids", "100,000 rows")
    refused(client, "/generative_scoring", body, *words)
    assert model.rows == []


def test_the_query_counts_for_each_item(client: TestClient, model: Asked) -> None:
    body = {"query": [65] * 20_001, "items": NAMES, "label_token_ids": [65]}
    refused(client, "/generative_scoring", body, "tokens", "8,000,000")
    assert model.rows == []


def test_a_text_to_tokenise_is_bounded(client: TestClient, model: Asked) -> None:
    text = "a" * 2_000_001
    words = ("2,000,001 characters", "2,000,000")
    refused(client, "/tokenize", {"prompt": text}, *words)
    scored = {"query": text, "items": ["a"], "label_token_ids": [65]}
    refused(client, "/generative_scoring", scored, *words)
    echoed = {"model": "m", "prompt": text, "echo": True, "max_tokens": 0}
    refused(client, "/v1/completions", echoed, *words)
    assert max(model.encoded, default=0) < 100


def test_an_echo_needs_a_log_probability_for_each_token(client: TestClient) -> None:
    """A backend that returns too few is at fault; no token of the prompt is left out."""
    body = {"model": "m", "prompt": "Hello", "echo": True, "logprobs": 0, "max_tokens": 0}
    reply = client.post("/v1/completions", json=body)
    assert reply.status_code == 500, reply.text
    assert "ValueError in the server" in reply.text


def test_the_texts_of_tokens_are_made_once_each(client: TestClient, model: Asked) -> None:
    decoded: list[Sequence[int]] = []
    decode = model.decode

    def noted(ids: Sequence[int]) -> str:
        decoded.append(ids)
        return decode(ids)

    model.decode = noted  # type: ignore[method-assign]
    body = {"prompt": "a b " * 1_000, "return_token_strs": True}
    reply = client.post("/tokenize", json=body).json()
    assert "".join(reply["token_strs"]) == "a b " * 1_000
    assert len(decoded) == len({*reply["tokens"]}) < reply["count"]


def test_stop_strings_count_for_each_answer(client: TestClient) -> None:
    body = {"model": "m", "prompt": "a", "stop": ["x" * 10_000, "y"], "n": 128}
    refused(client, "/v1/completions", body, "10,001 characters of stop strings x 128 texts")
    reply = called(client, "batch_generate", {"prompts": ["a"] * 300}, {"stop": ["x" * 10_000]})
    assert reply.status_code == 400
    assert "stop strings" in reply.text


# --------------------------------------------------------------------------- the contract


@pytest.mark.parametrize(
    ("operation", "arguments", "words"),
    [
        ("encode", {"text": "a" * 2_000_001}, ("2,000,001 characters", "2,000,000")),
        ("decode", {"ids": [65] * 9_000_000}, ("tokens", "8,000,000")),
        (
            "render_chat",
            {"messages": [{"role": "user", "content": "a" * 2_000_001}]},
            ("2,000,001 characters", "2,000,000"),
        ),
    ],
)
def test_the_tokenizers_operations_are_bounded_too(
    monkeypatch: pytest.MonkeyPatch, model: Asked, operation: str, arguments: Any, words: Any
) -> None:
    monkeypatch.setattr(
        "core_server.request_body.MAX_VALUES", 10**8
    )  # refused by this count otherwise
    served = Served("m", model, backend="fake", capabilities=frozenset(Capability))
    with TestClient(create_app([served], Settings(max_body=2**26))) as client:
        reply = called(client, operation, arguments)
    assert reply.status_code == 400, reply.text
    assert all(word in reply.text for word in words), reply.text
    assert model.encoded == []


def test_template_variables_count_for_each_answer(client: TestClient) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": 100}
    variables = {"chat_template_kwargs": {"a": "x" * 100_000}}
    words = ("characters of template variables", "100 texts", "8,000,000")
    refused(client, "/v1/chat/completions", chat | variables, *words)
    called_ = called(client, "chat", {"messages": chat["messages"]}, variables)
    assert called_.status_code == 200


@pytest.mark.parametrize("samples", [10**5, 10**7, 10**53])
def test_samples_count_for_each_prompt(client: TestClient, samples: int) -> None:
    arguments = {"prompts": [[65], [66]], "num_samples": samples}
    reply = called(client, "generate_tokens", arguments, {"max_tokens": 1})
    assert reply.status_code == 400
    assert "2 prompts x " in reply.text
    assert "100,000 rows" in reply.text


@pytest.mark.parametrize(
    ("operation", "arguments", "options", "unit"),
    [
        ("classify", {"prompts": ["a"] * 100_001}, {}, "rows"),
        ("classify", {"prompts": ["a"] * 6_000}, {"labels": NAMES}, "probabilities"),
        ("classify", {"prompts": ["a"] * 90_000}, {"return_logits": True}, "numbers"),
        ("hidden_states", {"prompts": ["a"] * 90_000, "layers": [0] * 900_000}, {}, "numbers"),
    ],
)
def test_results_are_reckoned(
    operation: str, arguments: Any, options: Any, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Asked()
    info = core.ModelInfo("fake", 1_000, 2, 64, 0, 0, 2_000, 0.0)
    monkeypatch.setattr(type(model), "info", property(lambda _: info))
    served = Served("m", model, backend="fake", capabilities=frozenset(Capability))
    with TestClient(create_app([served])) as client:
        reply = called(client, operation, arguments, options)
    assert reply.status_code == 400
    assert f" {unit}" in reply.text
    assert "at most" in reply.text


@pytest.mark.parametrize("operation", ["score", "score_tokens"])
@pytest.mark.parametrize(("prompts", "continuations"), [(0, 2), (2, 0), (1, 2)])
def test_lists_of_two_lengths_are_a_wrong_request(
    client: TestClient, operation: str, prompts: int, continuations: int
) -> None:
    one: Any = "a" if operation == "score" else [65]
    arguments = {"prompts": [one] * prompts, "continuations": [one] * continuations}
    reply = called(client, operation, arguments)
    assert reply.status_code == 400
    assert f"{continuations} continuations for {prompts} prompts" in reply.text


def test_values_are_counted_before_they_are_made(client: TestClient) -> None:
    """Three bytes of a body are a hundred as a value."""
    body = b'{"a": [' + b"{}," * 1_100_000 + b"{}]}"
    reply = client.post("/v1/classify", content=body)
    assert reply.status_code == 400
    assert "1000000 values" in reply.text
    commas = {"texts": ["," * 1_500_000], "labels": ["x", "y"], "template": "{text}"}
    [answer] = client.post("/v1/classify", json=commas).json()["data"]
    assert "context" in answer["error"]["message"]  # that text is one value


def test_what_others_have_is_not_given_twice(model: Asked) -> None:
    settings = Settings(max_memory=100_000)
    with TestClient(create_app([Served("m", model)], settings)) as client:
        reply = client.post("/v1/classify", json={"texts": ["a"] * 200, "labels": ["x", "y"]})
        assert reply.status_code == 413
        assert "100,000" in reply.text
        reply = client.post("/v1/classify", json={"texts": ["a"] * 20, "labels": ["x", "y"]})
        assert reply.status_code == 200
