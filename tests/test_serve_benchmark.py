"""benchmarks/serve.py: what it makes of answers, its clients on a real server, and its table."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("core_server")

from benchmarks.serve_parts import parts, requests, servers
from benchmarks.serve_parts.client import Ask, alternately, load
from benchmarks.serve_parts.servers import Server, running
from benchmarks.serve_parts.table import GOALS, markdown

LABELS = ("finance", "sports", "science", "technology")


@pytest.fixture(scope="module")
def nothing() -> Iterator[Server]:
    """Our server, before a model that answers at once with the first label."""
    with running("nothing", servers.nothing_to_compute()) as server:
        yield server


def test_rows_that_flip_are_counted_once() -> None:
    found = ["a", "b", "a", "a", "a", "b"]  # three orders of two rows
    assert parts.agreement(found, ["a", "b"]) == {"accuracy": 5 / 6, "flip_rate": 0.5}


def test_answers_of_many_clients_come_in_their_order(nothing: Server) -> None:
    orders = [LABELS[place:] + LABELS[:place] for place in range(4)] * 8
    done = load(nothing.port, [requests.decision("A text.", order) for order in orders], 8)
    # The prompt's order is no request's own, and the labels' is: what is told comes from there.
    assert [requests.chosen(reply) for reply in done.replies()] == [order[0] for order in orders]
    assert len(done.latencies) == len(orders)
    assert all(0 < seconds <= done.seconds for seconds in done.latencies)


def test_a_list_is_answered_whole(nothing: Server) -> None:
    [reply] = load(nothing.port, [requests.classification(requests.texts(3))], 1).replies()
    assert [answer["label"] for answer in reply["data"]] == ["finance"] * 3


def test_a_stream_is_read_to_its_end_and_its_tokens_counted(nothing: Server) -> None:
    ask = parts.core_named(requests.stream("A prompt", 8), "nothing")
    [body] = load(nothing.port, [ask], 1).bodies
    assert body.endswith(b"data: [DONE]\n\n")
    assert requests.generated(body) == 1  # the fake's whole answer is one letter


def test_a_refusal_is_no_figure(nothing: Server) -> None:
    with pytest.raises(RuntimeError, match="404"):
        load(nothing.port, [Ask("/nowhere", {})], 1)


def test_a_server_that_keeps_no_connection_is_asked_anew() -> None:
    class Old(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(asked).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Old) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            asks = [Ask("/", {"n": number}) for number in range(5)]
            assert [*load(server.server_port, asks, 2).replies()] == [each.body for each in asks]
        finally:
            server.shutdown()


def test_what_is_added_is_told_of_each(nothing: Server) -> None:
    asked: list[int] = []
    asks = [requests.classification([text]) for text in requests.texts(4)]
    assert len(alternately(nothing.port, asks, asked.append)) == 4
    assert asked == [0, 1, 2, 3]


def test_a_peers_token_names_the_label_that_it_begins() -> None:
    def reply(text: str) -> object:
        return {"choices": [{"text": text}]}

    assert requests.chosen(reply(" fin")) == "finance"
    assert requests.chosen(reply(" s")) == ""  # of sports, or of science
    assert requests.chosen(reply(" ")) == ""


def test_the_peers_are_asked_what_our_server_asks_its_model() -> None:
    body = requests.completion("Shares fell.", [1, 2], logprobs=5).body
    assert body["prompt"] == requests.prompt("Shares fell.")
    assert requests.ASKED in body["prompt"]
    assert "Shares fell." in body["prompt"]
    assert body["logit_bias"] == {"1": 100.0, "2": 100.0}
    assert "logprobs" not in requests.completion("Shares fell.", [1, 2]).body


def test_the_table_has_what_was_measured_beside_what_is_aimed_at() -> None:
    figures = {"streams": {"ratio": 0.96}, "latency": {"added_p50_ms": 2.5}}
    lines = markdown(figures).splitlines()[2:]
    assert [line.rsplit("|", 2)[1].strip() for line in lines] == ["met", "missed"]
    assert {goal.part for goal in GOALS} == {*parts.PARTS}
