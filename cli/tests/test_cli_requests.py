"""Lines of OpenAI's batch files as a job: each is a request of its own, answered on its wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from core.testing import FakeBackend, FakeModel
from core_cli.jobs.journal import Target
from core_cli.loading import Loaded

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli


def request(name: str, url: str, **body: object) -> dict[str, object]:
    return {"custom_id": name, "method": "POST", "url": url, "body": {"model": "m", **body}}


def label(prompt: str, labels: Any) -> dict[str, float]:
    return {name: (0.6 if name.strip() in prompt.split("\n\n")[-1] else 0.1) for name in labels}


HELLO = [{"role": "user", "content": "hello"}]
CHOICE = {"type": "choice", "name": "topic", "instructions": "What is it about?"}
CHOICE["choices"] = [{"value": "sports"}, {"value": "money"}]  # type: ignore[assignment]
REQUESTS = [
    request("chat", "/v1/chat/completions", messages=HELLO),
    request("short", "/v1/chat/completions", messages=HELLO, max_tokens=2),
    request("text", "/v1/completions", prompt="hello"),
    request("decide", "/v1/decisions", input="all about sports", questions=[CHOICE]),
    request("many", "/v1/chat/completions", messages=HELLO, n=2),
    request("nowhere", "/v1/embeddings", input="x"),
]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Forty times the requests, and one line that is no JSON."""
    file = tmp_path / "batch.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in REQUESTS * 40) + "oops\n")
    return file


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that answers each request in the same way, and labels by what the state says."""
    (tmp_path / "model").mkdir()

    def load(path: str, config: Any, needed: Any, usual: Any, instead: Any) -> Loaded:
        model = FakeModel("fine", labels=label)
        return Loaded(path, model, FakeBackend("fine", labels=label), "the test's", 0.0)

    monkeypatch.setattr("core_cli.jobs.run.load", load)


def answered(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("command", ["generate", "classify"])
def test_each_request_is_answered_on_its_wire(
    infer_cli: InferCli, lines: Path, tmp_path: Path, command: str
) -> None:
    out = tmp_path / "out.jsonl"
    done = infer_cli(command, "-m", tmp_path / "model", "-i", lines, "-o", out)
    assert done.exit_code == 5, done.output
    found = answered(out)
    assert [row["custom_id"] for row in found] == [r["custom_id"] for r in REQUESTS] * 40 + [None]
    chat, short, text, decision, many, nowhere = (row["response"] for row in found[:6])
    assert [r["status_code"] for r in (chat, short, text, decision)] == [200] * 4
    assert chat["body"]["choices"][0]["message"]["content"] == "fine"
    assert chat["body"]["object"] == "chat.completion"
    assert short["body"]["choices"][0]["message"]["content"] == "fi"
    assert short["body"]["choices"][0]["finish_reason"] == "length"
    assert text["body"]["choices"][0]["text"] == "fine"
    assert decision["body"]["answers"][0]["choice"] == "sports"
    assert (many["status_code"], many["body"]["error"]["param"]) == (400, "n")
    assert nowhere["status_code"] == 400
    assert found[-1]["error"]["code"] == "invalid_json_line"
    assert "81 of 241 rows failed." in done.stderr


def test_a_broken_job_of_requests_goes_on_to_the_same_bytes(
    infer_cli: InferCli, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    infer_cli("generate", "-m", tmp_path / "model", "-i", lines, "-o", whole)
    add, calls = Target.add, []

    def dying(self: Target, data: bytes) -> int:
        calls.append(1)
        if len(calls) == 3:
            raise OSError(5, "Input/output error")
        return add(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Target, "add", dying)
        ended = infer_cli("generate", "-m", tmp_path / "model", "-i", lines, "-o", out)
    assert "Interrupted: 96 rows written" in ended.stderr
    on = infer_cli("generate", "-m", tmp_path / "model", "-i", lines, "-o", out, "--resume")
    assert "81 of 241 rows failed." in on.stderr
    assert out.read_bytes() == whole.read_bytes()


def test_what_requests_have_no_place_for(infer_cli: InferCli, lines: Path, tmp_path: Path) -> None:
    table = infer_cli("generate", "-m", tmp_path / "model", "-i", lines, "-o", tmp_path / "out.csv")
    assert table.exit_code == 2
    assert "answered in JSON lines, not csv" in table.stderr


def test_with_labels_they_are_rows_like_any_other(infer_cli: InferCli, tmp_path: Path) -> None:
    file = tmp_path / "batch.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in REQUESTS[:3]))
    done = infer_cli(
        "classify", "-m", tmp_path / "model", "-i", file, "--labels", "hello,x", "--json"
    )
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["label"] for row in rows] == ["hello"] * 3
    assert [row["custom_id"] for row in rows] == ["chat", "short", "text"]
