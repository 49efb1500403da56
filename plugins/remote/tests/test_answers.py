"""Answers that cannot be: each is held against its request, whatever the server's wire."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import threading
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

import core
from core.errors import BackendProcessError, CoreError, ModelNotFoundError, RequestError
from core.kit.base import never_stop
from core.secret import Secret
from core.testing import FakeModel
from core_remote import failures
from core_remote.address import Address
from core_remote.exchange import Exchange
from core_remote.failures import ServerBusyError, ServerError
from core_wires.contract import VERSION, Description
from core_wires.plain import plain

_INFO = replace(FakeModel("x").info, vocab_size=9, num_layers=2, hidden_size=2, context_length=64)
_OFFERED = (
    *("generate", "classify", "labels", "logits", "batch_generate", "batch_streaming", "scoring"),
    *("tokenizing", "token_prompts", "hidden_states", "attention_inspector"),
)
_HEAD = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
_TOKEN = {"id": 1, "text": "a"}
_ROW = {
    "token": _TOKEN,
    "label": "x",
    "probabilities": {"x": 0.75, "y": 0.25},
    "logprobs": {"x": -0.5, "y": -1.6},
    "margin": 0.5,
    "label_mass": 0.8,
}
_END: dict[str, Any] = {"end": {"finish_reason": "length"}}


def _lines(*events: object) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


class Scripted:
    """A server of core's wire whose answer to all but ``describe`` is ``body``.

    ``more`` is sent again and again after it, until the client leaves; then ``left`` is set.
    """

    def __init__(self, wild: Any) -> None:
        self.info, self.body, self.more, self.left = _INFO, b"", b"", threading.Event()
        wild.answer = self.answer
        self.url = wild.url

    def answer(self, head: str, connection: socket.socket) -> None:
        connection.sendall(_HEAD.encode())
        if "/describe" in head:
            told = Description("m", VERSION, "m", self.info, _OFFERED)
            connection.sendall(_lines({"value": plain(told)}))
            return
        connection.sendall(self.body)
        try:
            while self.more:
                connection.sendall(self.more)
        except OSError:
            self.left.set()


@pytest.fixture
def server(wild: Any) -> Scripted:
    return Scripted(wild)


@pytest.fixture
def model(server: Scripted) -> Iterator[Any]:
    with core.load_model(server.url, options={"silence_timeout": 30.0}) as loaded:
        yield loaded


# --------------------------------------------------------------------------- rows


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"label": "hacked"}, "label 'hacked'"),
        ({"label": "y"}, "most probable"),
        ({"label": None}, "label None"),
        ({"probabilities": {"x": 0.75, "hacked": 0.25}}, "other labels"),
        ({"probabilities": {"x": 1.0}}, "other labels"),
        ({"probabilities": None}, "other labels"),
        ({"probabilities": {"x": "NaN", "y": 0.5}}, "sum to 1"),
        ({"probabilities": {"x": 7.0, "y": -6.0}}, "sum to 1"),
        ({"probabilities": {"x": 0.75, "y": 0.3}}, "sum to 1"),
        ({"logprobs": {"x": 0.5, "y": -1.0}}, "log-probabilities"),
        ({"logprobs": {"x": "NaN", "y": -1.0}}, "log-probabilities"),
        ({"logprobs": {"x": -1.0}}, "log-probabilities"),
        ({"logprobs": {"x": -9.0, "y": -0.1}}, "do not fit"),
        ({"logprobs": {"x": -0.5, "y": -0.5}}, "do not fit"),
        ({"label_mass": 1e-9}, "do not fit"),
        ({"label_mass": 1.0}, "do not fit"),
        ({"label_mass": 1.5}, "label_mass"),
        ({"label_mass": "NaN"}, "label_mass"),
        ({"margin": 0.9}, "margin"),
        ({"margin": "Infinity"}, "margin"),
        ({"token": None}, "no token"),
        ({"token": {"id": 9, "text": "a"}}, "token id 9"),
        ({"token": {"id": -1, "text": "a"}}, "token id -1"),
        ({"token": {"id": 1, "text": "a", "logprob": "NaN"}}, "log-probability nan"),
        ({"token": {"id": 1, "text": "a", "logprob": 0.5}}, "log-probability 0.5"),
    ],
)
def test_a_classification_that_cannot_be_is_the_error_of_its_row(
    changed: dict[str, Any], words: str, server: Scripted, model: Any
) -> None:
    server.body = _lines({"result": _ROW}, {"result": {**_ROW, **changed}}, {"end": {}})
    sound, wrong = model.classify(["a", "b"], labels=("x", "y"))
    assert (sound.label, sound.error, wrong.label, wrong.probabilities) == ("x", None, None, None)
    assert isinstance(wrong.error, RequestError)
    assert words in str(wrong.error)


KEY = 'sk-MARKED-a\\b"c-0815'


@pytest.mark.parametrize(
    "text", [f"x {KEY}", repr(KEY), json.dumps(KEY), f"x {KEY[:12]}", f"{'q' * 50} {KEY}"[:60]]
)
def test_no_part_of_a_key_is_shown(text: str) -> None:
    address = Address("http://h", key=Secret(KEY))
    assert "MARKED" not in address.quoted(text)
    error = failures.quoted(address, core.LabelError(text))
    error.more = {"a": [text], text: (text,)}  # type: ignore[attr-defined]
    assert "MARKED" not in repr(vars(failures.quoted(address, error))) + str(error)
    names = [f"{KEY} {number}" for number in range(100_000)]
    message = str(failures.missing_model(address, names))
    assert "MARKED" not in message
    assert "99980 more" in message
    assert len(message) < 1_000


def test_what_waits_for_its_reader_is_bounded_in_bytes() -> None:
    async def filled() -> int:
        exchange, lines = Exchange(), 0
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while True:
                    exchange.put(b"x" * 2**22)
                    lines += 1
                    await exchange.room()
        for _ in range(lines):
            exchange.next(never_stop)
        await exchange.room()
        return lines

    assert asyncio.run(filled()) == 17


def test_answers_to_what_nobody_asked_and_none_to_what_was(server: Scripted, model: Any) -> None:
    server.body = _lines({"result": _ROW}, {"end": {}})
    assert "that were not requested" in str(model.classify(["a"])[0].error)
    found = model.classify(["a"], labels=("x", "y"), return_logits=True)
    assert "9 logits" in str(found[0].error)
    for logits, sound in ((array("f", [0.5] * 9), True), (array("f", [math.nan] * 9), False)):
        server.body = _lines({"result": {"token": _TOKEN, "logits": plain(logits)}}, {"end": {}})
        assert (model.classify(["a"], return_logits=True)[0].error is None) == sound
    row = {name: it for name, it in _ROW.items() if name not in ("token", "logprobs")}
    server.body = _lines({"result": row}, {"end": {}})
    assert model.classify(["a"], labels=("x", "y"), labels_only=True)[0].label == "x"


def test_with_labels_only_the_label_alone_is_an_answer(server: Scripted, model: Any) -> None:
    def answer(label: str, **options: Any) -> str:
        server.body = _lines({"result": {"label": label}}, {"end": {}})
        row = model.classify(["a"], labels=("x", "y"), labels_only=True, **options)[0]
        return str(row.error or row.label)

    assert answer("x") == "x"
    assert "the label 'z'" in answer("z")
    assert "no token" in answer("x", return_logits=True)


@pytest.mark.parametrize(
    ("call", "sound", "wrong"),
    [
        (
            lambda model: model.score(["a"], ["b"]),
            {"logprob": -1.5, "token_logprobs": [-0.5, -1.0]},
            [
                {},
                {"logprob": -2.0, "token_logprobs": [-0.5, -1.0]},
                {"logprob": "NaN", "token_logprobs": ["NaN"]},
                {"logprob": 1.0, "token_logprobs": [1.0]},
            ],
        ),
        (
            lambda model: model.score_tokens([[1]], [[2, 3]]),
            {"logprob": "-Infinity", "token_logprobs": [-0.5, "-Infinity"]},
            [{"logprob": -0.5, "token_logprobs": [-0.5]}],
        ),
        (
            lambda model: model.batch_generate(["a"], max_tokens=2),
            {"tokens": [_TOKEN, _TOKEN], "finish_reason": "length"},
            [{"tokens": [_TOKEN] * 3}, {"tokens": [{"id": 10**30, "text": "a"}]}],
        ),
        (
            lambda model: model.generate_tokens([[1, 2]], max_tokens=2, num_samples=1),
            {"ids": [1, 2, 3], "generated": [False, False, True]}
            | {"finish_reason": "length", "error": None},
            [
                {"ids": ids, "generated": flags, "finish_reason": "length", "error": None}
                for ids, flags in (
                    ([2, 1, 3], [False, False, True]),
                    ([1, 2, 3], [False, True, True]),
                    ([1, 2, 9], [False, False, True]),
                    ([1, 2, 3, 3, 3], [False, False, True, True, True]),
                    ([1], [False]),
                )
            ],
        ),
        (
            lambda model: model.hidden_states(["a"], layers=(0, 1)),
            {"layers": [0, 1], "states": plain(array("f", [0.5] * 4))},
            [
                {"layers": [0, 0], "states": plain(array("f", [0.5] * 4))},
                {"layers": [0, 1], "states": plain(array("f", [0.5] * 3))},
                {"layers": [0, 1], "states": plain(array("f", [0.5, 0.5, 0.5, math.nan]))},
                {"layers": [0, 1]},
            ],
        ),
    ],
)
def test_rows_of_other_operations(
    call: Any, sound: dict[str, Any], wrong: list[dict[str, Any]], server: Scripted, model: Any
) -> None:
    server.body = _lines({"result": sound}, {"end": {}})
    assert call(model)[0].error is None
    for row in wrong:
        server.body = _lines({"result": row}, {"end": {}})
        error = call(model)[0].error
        assert isinstance(error, RequestError), row
        assert "an impossible answer" in str(error)


def test_a_cancel_of_the_servers_is_a_failed_row_and_not_one_of_ours(
    server: Scripted, model: Any
) -> None:
    cancelled = {"type": "GenerationCancelled", "message": "stopped"}
    server.body = _lines({"result": {"error": cancelled}}, {"end": {}})
    error = model.classify(["a"], labels=("x", "y"))[0].error
    assert type(error) is RequestError
    assert "cancelled the request: stopped" in str(error)
    row = {"error": cancelled, "finish_reason": "cancelled", "tokens": [_TOKEN]}
    server.body = _lines({"result": row}, {"end": {}})
    [result] = model.batch_generate(["a"])
    assert (type(result.error), result.finish_reason, result.text) == (RequestError, "error", "a")
    server.body = _lines({"error": cancelled})
    with pytest.raises(RequestError, match="cancelled the request") as raised:
        model.generate("a").text()
    assert type(raised.value) is RequestError


# --------------------------------------------------------------------------- values


def test_ids_keys_and_metrics_that_cannot_be(server: Scripted, model: Any) -> None:
    server.body = _lines({"value": [1, 2**31 - 1]}, {"end": {}})
    assert model.encode("a") == [1, 2**31 - 1]  # of an added token, say
    for odd in (-1, 10**30, 2**31):
        server.body = _lines({"value": [1, odd]}, {"end": {}})
        with pytest.raises(BackendProcessError, match="token id"):
            model.encode("a")

    sizes = {"num_layers": 1, "num_heads": 1, "seq_len": 1, "head_dim": 2, "architecture": "m"}
    keys = [[plain(array("f", [0.5, 0.5]))]]
    server.body = _lines({"value": {**sizes, "keys": keys}}, {"end": {}})
    assert model.inspect_attention("a").seq_len == 1
    for name in ("num_layers", "num_heads", "seq_len", "head_dim"):
        server.body = _lines({"value": {**sizes, name: 3, "keys": keys}}, {"end": {}})
        with pytest.raises(BackendProcessError, match="keys of"):
            model.inspect_attention("a")

    for metrics in ({"prompt_tokens": -1}, {"total_seconds": "NaN"}, {"prefill_seconds": 10**400}):
        server.body = _lines({"result": _ROW}, {"end": {"metrics": metrics}})
        with pytest.raises(BackendProcessError):
            model.classify(["a"], labels=("x", "y"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("vocab_size", -1), ("vocab_size", 0), ("vocab_size", 10**30)),
        *(("context_length", -5), ("context_length", 0), ("context_length", 10**30)),
        *(("hidden_size", -1), ("quant_bits", -1), ("logit_tolerance", math.nan)),
    ],
)
def test_a_description_that_cannot_be(name: str, value: Any, server: Scripted) -> None:
    server.info = replace(_INFO, **{name: value})
    with pytest.raises(CoreError, match=f"{name} of"):
        core.load_model(server.url)


# --------------------------------------------------------------------------- without an end


@pytest.mark.parametrize("submitted", [False, True])
def test_more_than_was_asked_for_ends_at_once(submitted: bool, server: Scripted) -> None:
    """Whoever reads, or nobody: a stream that was submitted may wait for its reader."""
    server.more = _lines({"token": _TOKEN}) * 50
    offered = (*_OFFERED, "submitting")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}._OFFERED", offered)
        model: Any = core.load_model(server.url)
    with model:
        config = core.GenerateConfig(max_tokens=4)
        stream = model.submit("a", config) if submitted else model.generate("a", config)
        if submitted:
            assert server.left.wait(60)  # before anything was read
        tokens = []
        with pytest.raises(ServerError, match="max_tokens=4"):
            tokens.extend(stream)
        assert (len(tokens), stream.finish_reason) == (4, "error")
        assert server.left.wait(60)
        server.left.clear()

        server.more = _lines({"row": 0, "token": _TOKEN}) * 50
        with pytest.raises(ServerError, match="max_tokens=4"):
            list(model.batch_stream(["a"], config))
        assert server.left.wait(60)
        server.left.clear()

        server.more = _lines({"result": _ROW}) * 50
        with pytest.raises(ServerError, match="more results than the 1 rows"):
            model.classify(["a"], labels=("x", "y"))
        assert server.left.wait(60)


@pytest.mark.parametrize("ping", [b"\n", b": ping\n\n", b" \r\n"])
def test_lines_that_say_nothing_do_not_break_a_silence(ping: bytes, server: Scripted) -> None:
    server.more = ping
    with core.load_model(server.url, options={"silence_timeout": 1.0}) as model:
        for call in (lambda: model.classify(["a"]), lambda: model.generate("a").text()):
            with pytest.raises(ServerError, match="no complete line for 1 s"):
                call()
            assert server.left.wait(60)
            server.left.clear()


# --------------------------------------------------------------------------- OpenAI's wire


class Speaker:
    """A server of OpenAI's wire: ``said`` is what it streams, ``listed`` what it lists."""

    def __init__(self, wild: Any) -> None:
        self._wild = wild
        self.listed: dict[str, Any] = {"id": "m", "max_model_len": 64}
        self.pieces: list[dict[str, Any]] = [
            {"text": "a"},
            {"text": "b", "finish_reason": "length"},
        ]
        self.more, self.left = b"", threading.Event()
        wild.answer = self.answer

    def answer(self, head: str, connection: socket.socket) -> None:
        if "/v1/models" in head:
            connection.sendall(_HEAD.encode() + json.dumps({"data": [self.listed]}).encode())
        elif "/v1/completions" not in head and "/v1/chat/completions" not in head:
            connection.sendall(_HEAD.replace("200 OK", "404 Not Found").encode())
        elif '"stream":true' not in self._wild.requests[-1].replace(" ", ""):
            usage = {"prompt_tokens": 3}
            answer = {"choices": [{"text": "a"}], "usage": usage}
            connection.sendall(_HEAD.encode() + json.dumps(answer).encode())
        else:
            body = b"".join(self.piece(each) for each in self.pieces)
            connection.sendall(_HEAD.encode() + body + (b"" if self.more else b"data: [DONE]\n\n"))
            with suppress(OSError):
                while self.more:
                    connection.sendall(self.more)
            self.left.set()

    @staticmethod
    def piece(choice: dict[str, Any]) -> bytes:
        text = choice.get("text", "")
        event = {"choices": [{"index": 0, "delta": {"content": text}, **choice}]}
        return b"data: " + json.dumps(event).encode() + b"\n\n"


@pytest.mark.parametrize(
    "listed",
    [
        *({"max_model_len": odd} for odd in ("x", -1, 10**30, True, [64], 1.5)),
        {"meta": {"n_ctx": "x", "n_ctx_train": -1, "n_embd": -1}},
    ],
)
def test_odd_sizes_in_a_listing_are_passed_over(listed: dict[str, Any], wild: Any) -> None:
    Speaker(wild).listed = {"id": "m", **listed}
    with core.load_model(wild.url) as model:
        assert (model.info.context_length, model.info.hidden_size) == (4096, 1)


def test_more_tokens_than_were_asked_for_are_left_out(wild: Any) -> None:
    speaker = Speaker(wild)
    with core.load_model(wild.url) as model:
        speaker.pieces, speaker.more = [], speaker.piece({"text": "a"}) * 20
        speaker.left.clear()
        stream = model.generate("x", max_tokens=32)
        assert [token.text for token in stream] == ["a"] * 32
        assert stream.finish_reason == "length"
        assert speaker.left.wait(60)


def test_a_stop_string_leaves_a_server_that_goes_on(wild: Any) -> None:
    speaker = Speaker(wild)
    with core.load_model(wild.url) as model:
        speaker.pieces, speaker.more = [{"text": "a "}], speaker.piece({"text": "b"})
        speaker.left.clear()
        assert model.generate("x", stop="b").text() == "a "
        assert speaker.left.wait(60)


def test_pieces_without_a_text_have_an_end(wild: Any) -> None:
    speaker = Speaker(wild)
    with core.load_model(wild.url) as model:
        speaker.pieces, speaker.more = [], speaker.piece({"text": ""}) * 20
        with pytest.raises(ServerError, match="more than 1064 lines"):
            model.generate("x", max_tokens=32).text()


def test_a_log_probability_above_zero(wild: Any) -> None:
    speaker = Speaker(wild)
    read: dict[str, Any] = {"tokens": ["a"], "token_logprobs": [-0.5]}
    speaker.pieces = [{"text": "a", "logprobs": {**read, "content": [_READ]}}]
    speaker.pieces += [{"text": "", "finish_reason": "length"}]
    with core.load_model(wild.url) as model:
        assert [t.logprob for t in model.generate("x", return_logprobs=True)] == [-0.5]
        read["token_logprobs"] = [2.0]
        speaker.pieces[0] = {"text": "a", "logprobs": read}
        with pytest.raises(RequestError, match=r"log-probability 2\.0"):
            model.generate("x", return_logprobs=True).text()


_READ = {"token": "a", "logprob": -0.5}


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("9" * 5000, None), ("\u0667", None), ("-1", None), ("1e9", None)],
)
def test_when_to_ask_again(header: str, seconds: float | None, server: Scripted, wild: Any) -> None:
    with core.load_model(server.url) as model:
        head = f"HTTP/1.1 503 Busy\r\nRetry-After: {header}\r\nConnection: close\r\n\r\n"
        wild.answer = lambda _, connection: connection.sendall(head.encode())
        with pytest.raises(ServerBusyError, match="later" if seconds is None else "in 7 s") as busy:
            model.classify(["a"])
        assert busy.value.retry_after == seconds


# --------------------------------------------------------------------------- llama.cpp's wire


class Llama:
    """As much of llama.cpp's server as a load asks, of three tokens: "a", "b" and a special one."""

    def __init__(self, wild: Any) -> None:
        self._wild = wild
        self.context, self.slots = 16, 1
        self.ids: list[Any] = [0]
        self.listed: list[dict[str, Any]] = [
            {"id": 0, "logprob": -0.5, "bytes": [97]},
            {"id": 1, "logprob": -1.5, "bytes": [98]},
            {"id": 2, "logprob": -2.5, "bytes": []},
        ]
        self.event: dict[str, Any] = {}
        wild.answer = self.answer

    def answer(self, head: str, connection: socket.socket) -> None:
        status, body = "200 OK", self._answer(head.split()[1], self._wild.requests[-1])
        if body is None:
            status, body = "404 Not Found", {"error": {"message": "no"}}
        head = _HEAD.replace("200 OK", status)
        connection.sendall(head.encode() + json.dumps(body).encode())

    def _answer(self, path: str, request: str) -> Any:
        if path == "/props":
            return {
                "default_generation_settings": {"n_ctx": self.context},
                "total_slots": self.slots,
            }
        if path == "/tokenize":
            return {"tokens": self.ids}
        if path == "/detokenize":
            return {"content": "<end>"}
        if path != "/completion":
            return None
        asked = json.loads(request.partition("\r\n\r\n")[2])
        tokens = [0] * asked["n_predict"]
        listed = self.listed if asked["n_probs"] > 3 else self.listed[:1]
        read = [{**self.listed[0], "top_logprobs": listed} for _ in tokens]
        event = {"tokens": tokens, "stop": True, "stop_type": "limit"}
        event |= {"tokens_predicted": len(tokens), "completion_probabilities": read}
        return event | self.event


def test_a_sound_server_of_that_wire(wild: Any) -> None:
    Llama(wild)
    with core.load_model(wild.url) as loaded:
        model: Any = loaded
        assert (model.info.vocab_size, model.info.context_length) == (3, 15)
        assert model.classify(["a"])[0].token.text == "a"
        assert model.encode("a") == [0]


@pytest.mark.parametrize("odd", [-1, 3, 2**40])
def test_ids_beyond_the_vocabulary_are_typed_errors(odd: int, wild: Any) -> None:
    llama = Llama(wild)
    with core.load_model(wild.url) as loaded:
        model: Any = loaded
        llama.event = {"tokens": [odd]}
        with pytest.raises(BackendProcessError):
            model.classify(["a"])
        llama.event, llama.ids = {}, [odd]
        with pytest.raises(BackendProcessError):
            model.encode("a")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("ids", [7]), ("ids", []), ("ids", [-1])),
        ("listed", [{"id": 0, "logprob": -0.5, "bytes": [300]}]),
        ("listed", [{"id": -1, "logprob": -0.5, "bytes": [97]}]),
        ("listed", [{"id": 0, "logprob": 0.5, "bytes": [97]}]),
        *(("context", -5), ("context", 0), ("context", 10**30), ("slots", -1), ("slots", 10**9)),
    ],
)
def test_no_load_ends_in_a_foreign_error(name: str, value: Any, wild: Any) -> None:
    setattr(Llama(wild), name, value)
    with pytest.raises((BackendProcessError, ModelNotFoundError)):
        core.load_model(wild.url)
