"""The request log, the ids of requests, and the counters of answers."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

from core.testing import FakeModel
from core_server import Served, Settings, create_app

LABELS = ["lion", "tiger"]


def shares(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    return dict.fromkeys(labels, 0.1)


def failing(prompt: str) -> str:
    raise ValueError("a private matter")


@pytest.fixture
def client(caplog: pytest.LogCaptureFixture) -> Iterator[TestClient]:
    caplog.set_level(logging.DEBUG, "core_server")
    served = [
        Served("fake", FakeModel("Good day", labels=shares)),
        Served("broken", FakeModel(failing)),
    ]
    with TestClient(create_app(served, Settings(api_key="secret"))) as client:
        client.headers["Authorization"] = "Bearer secret"
        caplog.clear()
        yield client


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(r.levelno, r.getMessage()) for r in caplog.records if r.name == "core_server.access"]


SYSTEM_ONE = {
    "model": "jev-latest",
    "state": "It roars.",
    "questions": {"q": {"type": "choice", "instructions": "?", "criteria": dict.fromkeys(LABELS)}},
}
CHAT = {"model": "fake", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}


@pytest.mark.parametrize(
    ("path", "body", "rows", "tokens"),
    [
        ("/v1/classify", {"texts": ["a", "b"], "labels": LABELS}, 2, r"16\+0"),
        ("/v1/chat/completions", CHAT, 1, r"\d+\+3"),
        ("/v1/chat/completions", CHAT | {"stream": True}, 1, r"\d+\+3"),
        ("/v1/chat/completions", CHAT | {"n": 2}, 2, r"\d+\+6"),
        ("/v1/embeddings", {"model": "fake", "input": ["a", "b"]}, 2, None),
        (
            "/v1/core/classify",
            {"model": "fake", "arguments": {"prompts": ["a", "b", "c"]}, "options": {}},
            3,
            r"3\+3",
        ),
        ("/v1/systemone", SYSTEM_ONE, 1, r"\d+\+1"),
    ],
)
def test_a_line_has_the_rows_and_tokens_of_its_request(
    client: TestClient,
    caplog: pytest.LogCaptureFixture,
    path: str,
    body: Mapping[str, Any],
    rows: int,
    tokens: str | None,
) -> None:
    reply = client.post(path, json=body, headers={"X-Request-Id": "mine-1"})
    assert reply.headers["X-Request-Id"] == "mine-1"
    [(level, line)] = lines(caplog)
    assert reply.status_code == 200, reply.text
    assert level == logging.INFO
    used = f" tokens={tokens}" if tokens else ""
    assert re.fullmatch(rf"mine-1 POST {path} 200 [\d.]+ms rows={rows}{used}", line), line


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("POST", "/v1/classify", {"texts": ["a"]}, 400, "labels: This field is required."),
        ("POST", "/v1/chat/completions", CHAT | {"model": "x"}, 404, "Unknown model 'x'"),
        ("GET", "/v1/nothing", None, 404, "Unknown endpoint"),
        ("GET", "/v1/classify", None, 405, "Unknown endpoint"),
    ],
)
def test_a_refusal_is_a_warning_with_its_reason(
    client: TestClient,
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    body: object,
    status: int,
    reason: str,
) -> None:
    reply = client.request(method, path, json=body)
    assert reply.status_code == status
    [(level, line)] = lines(caplog)
    assert level == logging.WARNING
    assert line.startswith(f"{reply.headers['X-Request-Id']} {method} {path} {status} ")
    assert reason in line


def test_requests_refused_before_any_route_are_logged_and_counted(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/v1/models", "/nowhere", "/v1/models"):
        client.get(path, headers={"Authorization": "Bearer wrong"})
    for _ in range(4):
        client.get("/v1/unknown")
    assert all("API key" in line for _, line in lines(caplog)[:3])
    metrics = client.get("/metrics").text
    assert 'core_answers_total{status="401"} 3.0' in metrics
    assert 'core_answers_total{status="404"} 4.0' in metrics


def test_an_unexpected_error_is_logged_with_its_traceback(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    for stream in (False, True):
        reply = client.post(
            "/v1/chat/completions", json=CHAT | {"model": "broken", "stream": stream}
        )
        assert reply.status_code == 500
        assert "private" not in reply.text
    errors = [record for record in caplog.records if record.name == "core_server.errors"]
    assert len(errors) == 2
    assert errors[0].exc_info is not None
    assert "a private matter" in str(errors[0].exc_info[1])
    assert [level for level, _ in lines(caplog)] == [logging.ERROR] * 2


@pytest.mark.parametrize("given", ["", "two words", "a\tb", "ä", "x" * 129])
def test_an_id_that_would_break_a_line_is_replaced(
    client: TestClient, caplog: pytest.LogCaptureFixture, given: str
) -> None:
    sent = {b"X-Request-Id": given.encode("latin-1")}
    own = client.get("/health", headers=sent).headers["X-Request-Id"]
    assert re.fullmatch("[0-9a-f]{32}", own)
    assert lines(caplog)[0][1].startswith(f"{own} GET /health 200 ")


def test_no_text_of_a_client_begins_a_line(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.post("/v1/chat/completions", json=CHAT | {"model": "a\nINFO forged"})
    client.get(f"/%0aINFO%20forged{'x' * 5000}")
    for _, line in lines(caplog):
        assert "forged" in line
        assert "\n" not in line
        assert len(line) < 600


def test_probes_are_logged_at_debug(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    client.get("/health")
    client.get("/metrics")
    client.get("/v1/models")
    levels = [level for level, _ in lines(caplog)]
    assert levels == [logging.DEBUG, logging.DEBUG, logging.INFO]


@pytest.mark.parametrize(
    ("level", "access", "expected"),
    [
        ("INFO", True, ["access", "errors"]),
        ("WARNING", True, ["errors"]),
        ("INFO", False, ["errors"]),
    ],
)
def test_the_configuration_writes_to_stderr(
    level: str, access: bool, expected: Sequence[str]
) -> None:
    program = f"""
import logging, logging.config
from core_server.access_log import configuration
logging.config.dictConfig(configuration({level!r}, access={access}))
logging.getLogger("core_server.access").info("access")
logging.getLogger("core_server.errors").error("errors")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == ""
    shown = done.stderr.splitlines()
    assert [line.split()[-1] for line in shown] == expected
    for line in shown:
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} (INFO|ERROR) ", line)


def test_a_client_that_leaves_is_logged(listening: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "core_server")
    endless = FakeModel(lambda prompt: "word " * 200_000)
    with listening(Served("fake", endless)) as (host, port):
        body = json.dumps(CHAT | {"stream": True, "max_tokens": 1_000_000}).encode()
        sent = {"Content-Type": "application/json"}
        url = f"http://{host}:{port}/v1/chat/completions"
        with urllib.request.urlopen(urllib.request.Request(url, body, sent), timeout=60) as answer:
            answer.readline()
    [(_, line)] = lines(caplog)
    assert "reason='the answer was not read to its end'" in line
