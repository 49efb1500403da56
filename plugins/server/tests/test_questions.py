"""Tasks and classifier heads that a server answers by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

import core
import core_tasks
from core.testing import FakeModel, write_model
from core.types import ModelInfo
from core_learn import FewShot
from core_server import Loadable, Served, create_app

NDJSON = {"Content-Type": "application/x-ndjson"}
TEXTS = ["the striker scored", "shares fell again", "a goal in overtime", "the bank raised rates"]
GOLD = ["sports", "finance", "sports", "finance"]


def shares(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """More for a label that the text names, and always more for the first."""
    named = {label: 0.5 if label in prompt else 0.1 for label in labels}
    return named | {labels[0]: named[labels[0]] + 0.1}


def model() -> FakeModel:
    return FakeModel("x", labels=shares)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The files of a calibrated task and of a head, made for the fake model."""
    folder = tmp_path_factory.mktemp("made")
    task = core_tasks.Task("{text} This news is about", ("finance", "sports"))
    task.fit_prior(model()).save(folder / "news.toml")
    FewShot(model()).fit(TEXTS * 3, GOLD * 3).save(folder / "head.safetensors")
    return folder / "news.toml", folder / "head.safetensors"


@pytest.fixture
def client(files: tuple[Path, Path]) -> Iterator[TestClient]:
    task, head = files
    app = create_app([Served("fake", model())], tasks={"news": task}, heads={"topics": head})
    with TestClient(app) as client:
        yield client


def test_the_decisions_are_those_of_the_files_in_process(
    client: TestClient, files: tuple[Path, Path]
) -> None:
    task, head = files
    alone = {
        "news": core_tasks.load_task(task).classify(model(), TEXTS),
        "topics": FewShot.load(head, model()).classify(TEXTS),
    }
    for name, level in (("news", "content-free"), ("topics", "head")):
        reply = client.post("/v1/classify", json={"task": name, "texts": TEXTS})
        assert reply.status_code == 200, reply.text
        for answer, decision in zip(reply.json()["data"], alone[name], strict=True):
            assert answer["label"] == decision.label
            assert answer["probabilities"] == pytest.approx(decision.probabilities)
            assert answer["level"] == decision.level == level
        assert reply.json()["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize("name", ["news", "topics"])
def test_a_body_of_lines_and_vllms_route_have_the_same_answers(
    client: TestClient, name: str
) -> None:
    texts = ["", *TEXTS]
    head = {"task": name, "show_prompts": True}
    whole = client.post("/v1/classify", json=head | {"texts": texts}).json()["data"]
    content = "".join(json.dumps(line) + "\n" for line in (head, *texts))
    lines = client.post("/v1/classify", content=content, headers=NDJSON)
    assert [json.loads(line) for line in lines.text.splitlines()] == whole
    assert "blank" in whole[0]["error"]["message"]
    assert TEXTS[0] in whole[1]["prompts"][0]
    as_vllm = client.post("/classify", json={"task": name, "input": TEXTS}).json()["data"]
    assert [row["label"] for row in as_vllm] == [answer["label"] for answer in whole[1:]]


def test_the_tasks_are_listed(client: TestClient) -> None:
    news, topics = client.get("/v1/tasks").json()["data"]
    assert news == {
        "id": "news",
        "object": "task",
        "model": "fake",
        "labels": ["finance", "sports"],
        "mode": "one",
        "level": "content-free",
        "template": "{text} This news is about",
    }
    assert (topics["id"], topics["object"], topics["level"]) == ("topics", "head", "head")


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"task": "nws"}, 404, "Unknown task 'nws'. Served: 'news', 'topics'."),
        ({"labels": ["a", "b"]}, 400, "labels: The task 'news' sets this"),
        ({"level": "raw"}, 400, "level: The task 'news' sets this"),
        ({"task": 1}, 400, "task"),
        ({"model": "other"}, 404, "Unknown model 'other'"),
    ],
)
def test_a_bad_body_is_told_what_is_wrong(
    client: TestClient, change: Mapping[str, Any], status: int, message: str
) -> None:
    body = {"task": "news", "texts": ["a"]} | dict(change)
    reply = client.post("/v1/classify", json=body)
    assert reply.status_code == status
    assert message in reply.json()["error"]["message"]


def test_a_server_without_tasks_says_so() -> None:
    with TestClient(create_app([Served("fake", model())])) as client:
        reply = client.post("/v1/classify", json={"task": "news", "texts": []})
        assert "None is served." in reply.json()["error"]["message"]
        assert client.get("/v1/tasks").json()["data"] == []


class Other(FakeModel):
    """A model with other hidden states, in a wider vocabulary."""

    @property
    def info(self) -> ModelInfo:
        return replace(super().info, vocab_size=7)

    def hidden_states(self, prompts: Any, config: Any = None, /, **options: Any) -> Any:
        return super().hidden_states([prompt[::-1] for prompt in prompts], config, **options)


def test_a_task_or_head_of_another_model_is_refused(files: tuple[Path, Path]) -> None:
    task, head = files
    other = Other("x", labels=shares, name="other")
    with pytest.raises(core.TaskError):
        create_app([Served("other", other)], heads={"topics": head})
    served: list[Served | Loadable] = [Served("fake", model())]
    served.append(Loadable("other", lambda: Served("other", other)))
    app = create_app(served, tasks={"news": task}, heads={"topics": head})
    with TestClient(app) as client:
        for name in ("news", "topics"):
            body = {"task": name, "texts": ["a"]}
            assert client.post("/v1/classify", json=body).status_code == 200
            reply = client.post("/v1/classify", json=body | {"model": "other"})
            assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_value")


def test_a_task_belongs_to_the_model_that_it_was_made_for() -> None:
    task = core_tasks.Task("{text}:", ("a", "b"), model="/models/second.gguf")
    first, second = model(), model()
    served = [Served("first", first), Served("second", second)]
    with TestClient(create_app(served, tasks={"ab": task})) as client:
        reply = client.post("/v1/classify", json={"task": "ab", "texts": ["x"]})
        assert reply.json()["model"] == "second"
        assert client.get("/v1/tasks").json()["data"][0]["model"] == "second"
        assert not first.calls


def test_two_of_one_name_are_refused(files: tuple[Path, Path]) -> None:
    with pytest.raises(ValueError, match="both named 'x'"):
        create_app([Served("m", model())], tasks={"x": files[0]}, heads={"x": files[1]})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task", "news.toml"], "is not NAME=FILE"),
        (["--task", "news=missing.toml"], "File 'missing.toml' does not exist"),
        (["--task", "a={0}", "--task", "a={0}"], "Two files are named 'a'"),
        (["--task", "a={0}", "--head", "a={1}"], "both named 'a'"),
        (["--task", "a={1}"], "task"),
    ],
)
def test_files_are_checked_before_a_model_is_loaded(
    files: tuple[Path, Path], words: Sequence[str], message: str, tmp_path: Path
) -> None:
    from core_cli.app import build

    write_model(tmp_path / "m")
    given = [word.format(*files) for word in words]
    result = CliRunner().invoke(build(), ["serve", str(tmp_path / "m"), *given])
    assert result.exit_code != 0
    assert message in result.output + str(result.exception)
