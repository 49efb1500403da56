"""Whatever JSON can say, a wire answers with a request or with its own error, and nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.types import ClassifyResult
from core_wires import batch, values
from core_wires.errors import WireError
from core_wires.questions import DecisionRequest
from core_wires.reading import readings

MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
CONTENT = {"a": ["b", None, 1.5], "c": {"d": True}}
SOUND: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "m", "messages": MESSAGES, "stop": ["\n"], "seed": 1},
    "/v1/completions": {"model": "m", "prompt": "Hello", "temperature": 0.5, "logprobs": 0},
    "/v1/decisions": {
        "model": "m",
        "input": [
            {"role": "user", "content": "Hi"},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "done"},
        ],
        "questions": [
            {"type": "predicate", "name": "p", "instructions": "Is it so?"},
            {"type": "choice", "instructions": "?", "choices": [{"value": "a"}, {"value": True}]},
            {"type": "score", "instructions": "?", "levels": [{"label": "a"}, {"label": "b"}]},
        ],
    },
    "/v1/systemone": {
        "model": "jev-latest",
        "state": CONTENT,
        "questions": {
            "n": {"type": "noul", "instructions": CONTENT, "criteria": {"true": "x"}},
            "c": {"type": "choice", "criteria": {"a": None, "b": CONTENT}},
            "s": {"type": "score", "instructions": "?", "criteria": ["low", CONTENT]},
        },
    },
}
URLS = sorted(SOUND)
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text()
    | st.sampled_from(["user", "choice", "score", "text", "input_json", "true", "", "\ud800"])
)
ANYTHING = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each value inside this one, itself too."""
    paths = [path]
    keys: Any = value if isinstance(value, dict) else ()
    if isinstance(value, list):
        keys = range(len(value))
    for key in keys:
        paths += places(value[key], (*path, key))  # type: ignore[index]
    return paths


def changed(body: object, path: tuple[Any, ...], new: object) -> Any:
    """A copy with another value at this place."""
    if not path:
        return new
    whole: Any = copy.deepcopy(body)
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return whole


def check(url: str, body: object) -> None:
    """The reader keeps its promise, and what it lets through can be asked."""
    try:
        request = batch.READERS[url](body)
    except WireError as error:
        refused(url, error)
    else:
        if isinstance(request, DecisionRequest):
            can_be_asked(request)
        else:
            request.config()


def refused(url: str, error: WireError) -> None:
    assert error.status == (422 if url == "/v1/systemone" else 400)
    assert json.loads(json.dumps(error.body, allow_nan=False)) == error.body
    json.dumps(error.body, ensure_ascii=False).encode()
    assert str(error)


def can_be_asked(request: DecisionRequest) -> None:
    for reading in readings(request):
        labels = reading.labels
        assert len({*labels}) == len(labels) >= 2
        assert not any(a != b and b.startswith(a) for a in labels for b in labels)
        reading.as_text().encode()
        assert reading.as_messages()[0].content
        answer = reading.answer(
            ClassifyResult(probabilities=dict.fromkeys(labels, 1 / len(labels)))
        )
        assert getattr(answer, "confidence", 0.0) == pytest.approx(0.0, abs=1e-9) or len(labels) > 2


@given(st.sampled_from(URLS), ANYTHING)
def test_any_value_is_a_request_or_refused(url: str, body: object) -> None:
    check(url, body)


@settings(max_examples=200)
@given(st.data(), st.sampled_from(URLS))
def test_any_value_anywhere_in_a_sound_request_is_one_or_refused(
    data: st.DataObject, url: str
) -> None:
    path = data.draw(st.sampled_from(places(SOUND[url])))
    check(url, changed(SOUND[url], path, data.draw(ANYTHING)))


@pytest.mark.parametrize("url", URLS)
def test_the_sound_ones_are_taken(url: str) -> None:
    batch.READERS[url](SOUND[url])


@given(st.binary() | st.text() | st.dictionaries(st.text(), ANYTHING))
@example("[" * 100_000)
@example(b"\xff{}")
@example('{"custom_id": NaN}')
@example("1" * 5000)
@example("{}")
def test_a_line_never_raises(line: str | bytes | Mapping[str, object]) -> None:
    assert isinstance(batch.read(line).error, WireError)


def nested(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = [value]
    return value


BOMBS: dict[str, Callable[[], object]] = {
    "deep": lambda: nested(1000),
    "long": lambda: [0] * 2000,
    "infinite": lambda: float("inf"),
    "huge": lambda: 10**5000,
    "no JSON": lambda: {1, 2},
}


@pytest.mark.parametrize("bomb", sorted(BOMBS))
@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("place", ["state", "input", "messages", "prompt", "questions", "x_mine"])
def test_what_is_too_deep_too_much_or_no_json_is_refused(
    url: str, place: str, bomb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "MAX_VALUES", 1500)
    body = {**SOUND[url], place: BOMBS[bomb]()}
    with pytest.raises(WireError) as caught:
        batch.READERS[url](body)
    refused(url, caught.value)
