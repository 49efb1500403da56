"""Whatever bytes come as a body or as headers: an answer without a 5xx, in its wire's shape."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core.protocols import Capability
from core.testing import FakeModel
from core_server import Served, Settings, create_app

QUESTIONS = {
    "n": {"type": "noul", "instructions": {"a": ["b", None]}, "criteria": {"true": "x"}},
    "c": {"type": "choice", "criteria": {"a": None, "b": {"c": 1}}},
    "s": {"type": "score", "instructions": "?", "criteria": ["low", "high"]},
}
ASKED = [
    {"type": "predicate", "name": "p", "instructions": "Is it so?"},
    {"type": "choice", "instructions": "?", "choices": [{"value": "a"}, {"value": True}]},
    {"type": "score", "instructions": "?", "levels": [{"label": "a"}, {"label": "b"}]},
]
SOUND: dict[str, dict[str, Any]] = {
    "/v1/systemone": {"model": "jev-latest", "state": ["x"], "questions": QUESTIONS},
    "/v1/decisions": {"model": "m", "input": "x", "questions": ASKED, "x_reading": "letters"},
    "/v1/chat/completions": {
        **{
            "model": "m",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "H"}]}],
        },
        **{"max_tokens": 1, "logprobs": True, "top_logprobs": 2, "n": 2, "stream": True},
    },
    "/v1/responses": {
        "model": "fake",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
        "instructions": "Be brief.",
        "max_output_tokens": 4,
    },
    "/v1/completions": {
        **{"model": "m", "prompt": "Hello", "echo": True, "logprobs": 0, "max_tokens": 3, "n": 2},
        **{"temperature": 0.5, "seed": 1, "stop": ["x"], "stream": False},
    },
    "/v1/classify": {
        **{
            "texts": ["a", "b"],
            "labels": ["x", "y"],
            "template": "{text} is",
            "level": "content-free",
        },
        **{"mode": "one", "threshold": 0.1},
    },
    "/classify": {"model": "m", "input": ["a"], "labels": ["x", "y"]},
    "/generative_scoring": {
        **{"model": "m", "query": "q", "items": ["a", "b"], "label_token_ids": [65, 66]},
        **{"apply_softmax": True, "item_first": False},
    },
    "/tokenize": {"model": "m", "prompt": "a", "return_token_strs": True},
    "/detokenize": {"model": "m", "tokens": [65, 66]},
}
ATOMS: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3.5, -0.0, 1e308, 2**31, 2**64, -(2**70), 10**30, 0.1),
    *(
        "",
        " ",
        "a",
        "m",
        "jev-latest",
        "user",
        "letters",
        "content-free",
        "many",
        "\x00",
        "é½🎉",
        "{text}",
    ),
    *("<|im_end|>", "{", "}", "a" * 300, "\n\n", "\u202e", "choice", [], {}, [[]], ["a"], {"a": 1}),
    *([0], [-1], {"type": "text", "text": "x"}, [["a"], ["b"]], {"type": "json_object"}),
]
HEADERS = [
    *(b"content-type", b"content-encoding", b"content-length", b"host", b"authorization"),
    *(b"accept", b"expect", b"transfer-encoding", b"cookie", b"x-request-id", b"origin", b"range"),
]
VALUES = [
    *(
        b"application/json",
        b"application/x-ndjson",
        b"text/plain; charset=utf-16",
        b"gzip",
        b"zstd",
    ),
    *(
        b"identity",
        b"br, gzip",
        b"localhost",
        b"[::1]:1",
        b"evil",
        b"Bearer",
        b"Bearer \xff",
        b"-1",
    ),
    *(
        b"",
        b"\xff\xfe",
        b"a" * 5000,
        b"100-continue",
        b"chunked",
        b"multipart/form-data; boundary=x",
    ),
]


class Scores(FakeModel):
    """The fake, with scores of ids and logits, so that every route has something to do."""

    def classify(self, prompts: Any, config: Any = None, /, **options: Any) -> Any:
        if config is None or not config.return_logits:
            return super().classify(prompts, config, **options)
        rows = super().classify(prompts, config, return_logits=False)
        logits = [0.0] * 200
        return [row if row.error else core.ClassifyResult(logits=logits) for row in rows]  # type: ignore[arg-type]

    def generate_tokens(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    stream_tokens = generate_tokens

    def score_tokens(self, prompts: Any, continuations: Any, config: Any = None, /) -> Any:
        return [core.Score(-1.0 * len(c), (-1.0,) * len(c)) for c in continuations]


def fake() -> Served:
    """A model of few tokens that answers whatever it is asked."""
    shares: Callable[..., Any] = lambda prompt, labels: dict.fromkeys(labels, 0.5 / len(labels))  # noqa: E731
    answers: Any = lambda prompt: "Hi. "  # noqa: E731
    model = Scores(answers, labels=shares, context_length=512)
    return Served("m", model, backend="fake", capabilities=frozenset(Capability))


# --------------------------------------------------------------------------- what is sent


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each value inside this one, itself too."""
    inner: list[Any] = [*value] if isinstance(value, dict) else []
    if isinstance(value, list):
        inner = [*range(len(value))]
    return [path, *(p for key in inner for p in places(value[key], (*path, key)))]


def mutated(dice: random.Random, body: Any) -> Any:
    """The body with some values changed, gone, doubled or under another name."""
    body = copy.deepcopy(body)
    for _ in range(dice.choice([1, 1, 1, 2, 4])):
        path = dice.choice(places(body)[1:] or [()])
        if not path:
            return dice.choice(ATOMS)
        inner = body
        for step in path[:-1]:
            inner = inner[step]
        act = dice.randrange(4)
        if act == 0 and isinstance(inner, dict):
            inner[dice.choice(["x_new", "text", "type", "", "model", "é"])] = dice.choice(ATOMS)
        elif act == 1:
            del inner[path[-1]]
        elif act == 2 and isinstance(inner, list):
            inner += [copy.deepcopy(inner[path[-1]])] * dice.choice([1, 2, 500])
        else:
            inner[path[-1]] = copy.deepcopy(dice.choice(ATOMS))
    return body


def encoded(dice: random.Random, path: str) -> bytes:
    """The bytes of a body: JSON, lines of JSON, JSON that was damaged, or noise."""
    body = mutated(dice, SOUND[path])
    data = json.dumps(body, allow_nan=True, ensure_ascii=dice.random() < 0.5)
    raw = data.encode("utf-8", "surrogatepass")
    act = dice.randrange(12)
    if act == 0:
        cut = dice.randrange(len(raw) + 1)
        return raw[:cut] + dice.randbytes(dice.randrange(4)) + raw[cut + 1 :]
    if act == 1:
        return dice.randbytes(dice.randrange(200))
    if act == 2:
        return dice.choice([b"[" * 3000, b'{"a":' * 300, b"1e400", b"NaN", b"\xef\xbb\xbf{}", b""])
    if act == 3:
        return b"\n".join([raw, b'"a"', b"{", raw, b""])
    return raw


def headers(dice: random.Random, body: bytes) -> list[tuple[bytes, bytes]]:
    headers_ = [(b"host", b"localhost"), (b"content-length", str(len(body)).encode())]
    if dice.random() < 0.5:
        pairs = range(dice.randrange(1, 4))
        headers_ += [(dice.choice(HEADERS), dice.choice(VALUES)) for _ in pairs]
    if dice.random() < 0.1:
        headers_ += [(dice.randbytes(3).lower(), dice.randbytes(8))]
    return headers_


async def answer(app: Any, path: str, body: bytes, fields: list[tuple[bytes, bytes]]) -> Any:
    """The status and the body of the answer to one request, asked of the application itself."""
    scope = {
        **{"type": "http", "http_version": "1.1", "method": "POST", "path": path},
        **{"raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http"},
        **{"headers": fields, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {}},
    }
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    gone = asyncio.Event()
    status, content = 0, b""

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal status, content
        status = message.get("status", status)
        content += message.get("body", b"")

    await asyncio.wait_for(app(scope, receive, send), 300)
    gone.set()
    return status, content


def fuzzed(served: Served, seeds: range) -> Counter[int]:
    """How often each status came."""
    app = create_app([served], Settings(max_body=1 << 20))
    statuses: Counter[int] = Counter()

    async def ask(seed: int) -> None:
        dice = random.Random(seed)
        path = dice.choice([*SOUND])
        body = encoded(dice, path)
        status, content = await answer(app, path, body, headers(dice, body))
        statuses[status] += 1
        assert 200 <= status < 500, (seed, status, content)
        assert b"internal_error" not in content, (seed, content)
        if status >= 400:
            assert json.loads(content).keys() <= {"error", "detail"}, (seed, content)

    async def ask_all() -> None:
        async with app.router.lifespan_context(app):
            for begin in range(seeds.start, seeds.stop, 16):
                await asyncio.gather(*map(ask, range(begin, min(begin + 16, seeds.stop))))

    asyncio.run(ask_all())
    return statuses


def test_an_echo_of_nothing_is_refused() -> None:
    """What ten thousand had found."""
    assert fuzzed(fake(), range(107_857, 107_858)) == {400: 1}


def test_no_body_and_no_headers_are_the_servers_fault() -> None:
    statuses = fuzzed(fake(), range(2_000))
    assert statuses[200] > 100, statuses
    assert statuses[400] > 100, statuses
    assert statuses[422] > 10, statuses


@pytest.mark.slow
def test_nor_are_ten_thousand() -> None:
    assert fuzzed(fake(), range(100_000, 110_000)).total() == 10_000


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["mlx_cpu", "llama_cpp"])
def test_nor_are_they_at_a_real_model(backend: str, request: pytest.FixtureRequest) -> None:
    model: Path = request.getfixturevalue("smollm2_dir" if backend == "mlx_cpu" else "smollm2_gguf")
    loaded = core.load_model(model, backend=backend, context_len=128)
    offers = core.get_backend(backend).capabilities
    served = Served("m", loaded, backend=backend, capabilities=offers)
    assert fuzzed(served, range(1_500)).total() == 1_500
