"""Values of the contract through JSON and back, to the last bit; and data that is none of them."""

from __future__ import annotations

import inspect
import json
import math
from array import array
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import errors
from core.errors import CoreError, InvalidOptionError
from core.kit.chat import RenderedPrompt
from core.options import GenerateConfig
from core.types import (
    AttentionSnapshot,
    BatchResult,
    ClassifyResult,
    GenerateMetrics,
    HiddenResult,
    ModelInfo,
    Score,
    Token,
    TokenSequence,
)
from core_wires.contract import config_of, options_of
from core_wires.plain import error_of, plain, prompt_of, value_of

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TOKENS = st.builds(Token, st.integers(0, 2**40), TEXTS, st.none() | FLOATS)
NUMBERS = st.dictionaries(TEXTS, FLOATS, max_size=3)
REASONS = st.sampled_from(["stop", "length", "cancelled", "error"])
VALUES = st.one_of(
    TOKENS,
    st.builds(ClassifyResult, st.none() | TOKENS, label=st.none() | TEXTS, logprobs=NUMBERS),
    st.builds(BatchResult, st.lists(TOKENS, max_size=3).map(tuple), REASONS),
    st.builds(Score, FLOATS, st.lists(FLOATS, max_size=3).map(tuple), st.booleans()),
    st.builds(GenerateMetrics, st.integers(0, 9), prefill_seconds=st.floats(0, 1e9)),
    st.builds(ModelInfo, TEXTS, *[st.integers(0, 9)] * 6, st.floats(0, 1)),
    st.builds(
        TokenSequence,
        st.lists(st.integers(0, 9), max_size=3).map(tuple),
        st.lists(st.booleans(), max_size=3).map(tuple),
        REASONS,
        st.none(),
    ),
)


def through_json(value: object) -> Any:
    return json.loads(json.dumps(plain(value), allow_nan=False))


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    assert repr(value_of(type(value), through_json(value))) == repr(value)  # NaN equals nothing


def test_arrays_come_back_to_the_last_bit() -> None:
    floats = array("f", [1.5, -0.0, math.inf, -math.inf, 1e-45])
    row = ClassifyResult(logits=floats)
    assert value_of(ClassifyResult, through_json(row)).logits == floats
    states = HiddenResult((2,), floats)
    assert value_of(HiddenResult, through_json(states)).states == floats
    keys = AttentionSnapshot(1, 2, 5, 1, "x", ((floats, floats),))
    assert value_of(AttentionSnapshot, through_json(keys)).keys == keys.keys


def _example(kind: type[CoreError]) -> CoreError:
    """An error of this class with any arguments that it takes."""
    if kind.__init__ in (Exception.__init__, ValueError.__init__):
        return kind("words")
    try:
        wanted = inspect.signature(kind).parameters.values()
    except ValueError:  # of classes of C's
        return kind("words")
    required = [
        parameter
        for parameter in wanted
        if parameter.default is parameter.empty and parameter.kind.value <= 1
    ]
    return kind(
        *(3 if parameter.annotation in ("int", "float") else "words" for parameter in required)
    )


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, CoreError)
    ],
)
def test_an_error_comes_back_with_its_class_its_words_and_its_attributes(
    kind: type[CoreError],
) -> None:
    error = _example(kind)
    restored = error_of(through_json(error))
    assert type(restored) is kind
    assert str(restored) == str(error)
    assert vars(restored) == vars(error)


def test_foreign_errors_do_not_tell_their_words() -> None:
    restored = error_of(through_json(KeyError("/home/somebody/secret")))
    assert isinstance(restored, errors.BackendError)
    assert "secret" not in str(restored)
    assert isinstance(error_of({"type": "NotOurs", "message": "m"}), errors.BackendProcessError)
    assert isinstance(error_of({"type": "_restore", "message": "m"}), errors.BackendProcessError)


def test_a_prompt_keeps_its_special_tokens() -> None:
    prompt = RenderedPrompt("<user>") + "<user>"
    restored = prompt_of(through_json(prompt))
    assert isinstance(restored, RenderedPrompt)
    assert (restored, restored.marked) == (prompt, prompt.marked)
    assert prompt_of("plain") == "plain"
    for wrong in (7, None, {"marked": "a"}, {"marked": "a", "marker": "bc"}, ["a"]):
        with pytest.raises(ValueError, match="not a prompt"):
            prompt_of(wrong)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([Token, ClassifyResult, BatchResult, Score, HiddenResult, ModelInfo]), JSON)
def test_what_is_no_value_is_a_value_error(kind: type, data: object) -> None:
    with suppress(ValueError, CoreError):
        value_of(kind, data)


def test_unknown_fields_are_passed_over_and_missing_ones_have_their_default() -> None:
    assert value_of(Token, {"id": 1, "text": "a", "later": [1]}) == Token(1, "a")
    for wrong in ({"id": True, "text": "a"}, {"id": 1}, {"id": 1, "text": "a", "logprob": "one"}):
        with pytest.raises(ValueError, match="Token"):
            value_of(Token, wrong)


def test_options_that_are_at_their_default_are_not_sent() -> None:
    config = GenerateConfig(max_tokens=3, stop=("a",), seed=0, labels=("x", "y"))
    assert options_of(GenerateConfig()) == {}
    assert config_of(json.loads(json.dumps(options_of(config)))) == config
    for wrong in ({"cancel": True}, {"no_such_option": 1}, {"temperature": -1}):
        with pytest.raises(InvalidOptionError):
            config_of(wrong)
