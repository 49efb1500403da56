"""Option values: what is taken, what is refused and how, and how keywords join a config."""

from __future__ import annotations

import dataclasses
import math
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidOptionError, LabelError
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    LoadConfig,
    LoadOptions,
    RequestOptions,
    SamplingOptions,
    resolve_classify,
    resolve_generate,
    resolve_load,
)
from core.sampling_options import SAMPLING_OPTIONS, SamplingOption

NAN, INF = math.nan, math.inf


class Index:
    """Something that is an integer to Python and not an int, like numpy's."""

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("max_tokens", 0, ">= 1"),
        ("max_tokens", -5, ">= 1"),
        ("max_tokens", 2.0, "integer"),
        ("max_tokens", True, "integer"),
        ("max_tokens", "9", "integer"),
        ("temperature", NAN, "finite"),
        ("temperature", INF, "finite"),
        ("temperature", -0.1, ">= 0"),
        ("temperature", "0.5", "finite"),
        ("temperature", False, "finite"),
        ("temperature", Decimal("sNaN"), "finite"),
        ("temperature", numpy.array([1, 2]), "finite"),
        ("top_k", numpy.array([1, 2]), ">= 0"),
        ("top_k", -1, ">= 0"),
        ("top_p", 0.0, "> 0 and <= 1"),
        ("top_p", 1.1, "> 0 and <= 1"),
        ("typical_p", 0.0, "> 0 and <= 1"),
        ("typical_p", 1.5, "> 0 and <= 1"),
        ("min_p", -0.1, ">= 0 and <= 1"),
        ("min_p", NAN, ">= 0 and <= 1"),
        ("repeat_penalty", 0, "> 0"),
        ("seed", -1, "from 0 to"),
        ("seed", 2**64, "from 0 to"),
        ("stop", ("a", ""), "non-empty strings"),
        ("stop", (1,), "non-empty strings"),
        ("stop", b"a", "non-empty strings"),
        ("stop_tokens", (-1,), ">= 0"),
        ("stop_tokens", "12", "integers"),
        ("return_logprobs", 1, "True or False"),
        ("return_logits", None, "True or False"),
        ("labels", "yes", "sequence of non-empty strings"),
        ("labels", ("yes", ""), "non-empty strings"),
        ("labels", ("yes", "n\udcffo"), "valid Unicode text"),
        ("label_prefix", None, "a string"),
        ("label_prefix", "\ud800", "valid Unicode text"),
        ("cancel", 5, "is_set()"),
        ("timeout", 0, "> 0"),
        ("timeout", INF, "finite"),
    ],
)
def test_a_wrong_value_names_option_value_and_range(option: str, value: Any, expected: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        GenerateConfig(**{option: value})
    assert caught.value.option == option
    assert str(caught.value).startswith(f"{option}=")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("backend", None, "a string"),
        ("context_len", -1, ">= 0"),
        ("context_overflow", "drop", "'stop', 'rotate'"),
        ("gpu_layers", -2, ">= -1"),
        ("parallel_slots", 1.5, "integer"),
        ("adapter_path", 3, "a path"),
        ("options", [("a", 1)], "a mapping"),
        ("options", {1: 2}, "a mapping"),
    ],
)
def test_a_wrong_load_option(option: str, value: Any, expected: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"^{option}=") as caught:
        LoadConfig(**{option: value})
    assert expected in str(caught.value)


def test_the_table_of_sampling_options_and_the_config_are_one() -> None:
    """The config names each option literally, for type checkers; so does ``SamplingOptions``."""
    fields = {field.name: field.default for field in dataclasses.fields(GenerateConfig)}
    table = {option.name: option.default for option in SAMPLING_OPTIONS}
    assert [name for name in fields if name in table] == list(table)
    assert {name: fields[name] for name in table} == table
    own = [
        name
        for name in SamplingOptions.__annotations__
        if name not in RequestOptions.__annotations__
    ]
    assert own == [*table, "return_logprobs"]


@pytest.mark.parametrize("option", SAMPLING_OPTIONS, ids=lambda option: option.name)
def test_the_values_of_the_table_are_what_they_are_said_to_be(option: SamplingOption) -> None:
    assert option.checked(option.default) == option.default
    assert option.checked(option.telling) == option.telling != option.default
    if option.only_best is not None:
        assert option.checked(option.only_best) == option.only_best
    with pytest.raises(InvalidOptionError, match=f"^{option.name}="):
        option.checked(option.wrong)


def test_the_label_that_is_no_text_is_named() -> None:
    with pytest.raises(InvalidOptionError, match=r"labels='n\\udcffo' .* no lone surrogates"):
        GenerateConfig(labels=("yes", "n\udcffo"))


def test_values_come_out_in_their_plain_form() -> None:
    config = GenerateConfig(
        max_tokens=Index(),  # type: ignore[arg-type]
        temperature=1,
        stop=["a", "b"],  # type: ignore[arg-type]
        stop_tokens=[Index()],  # type: ignore[arg-type]
        labels=["x"],  # type: ignore[arg-type]
        seed=0,
    )
    assert (config.max_tokens, config.temperature) == (7, 1.0)
    assert isinstance(config.temperature, float)
    assert (config.stop, config.stop_tokens, config.labels) == (("a", "b"), (7,), ("x",))
    assert config.seed == 0


def test_one_stop_string_is_one_stop_string() -> None:
    assert resolve_generate(None, {"stop": "END"}).stop == ("END",)


def test_an_event_cancels_and_equal_labels_are_refused() -> None:
    event = threading.Event()
    assert GenerateConfig(cancel=event).cancel is event
    with pytest.raises(LabelError, match="Duplicate label 'b'"):
        GenerateConfig(labels=("a", "b", "b"))


def test_configs_are_frozen_and_comparable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        GenerateConfig().max_tokens = 1  # type: ignore[misc]
    assert GenerateConfig(stop=("a",)) == resolve_generate(None, {"stop": ["a"]})
    assert hash(LoadConfig(options={"a": 1})) == hash(LoadConfig(options={"b": 2}))


def test_a_config_does_not_see_later_changes_of_the_caller() -> None:
    options: dict[str, object] = {"speed": 1}
    config = LoadConfig(options=options, adapter_path=Path("a"))
    options["speed"] = 2
    assert config.options == {"speed": 1}


def test_keywords_win_over_the_config() -> None:
    config = GenerateConfig(temperature=0.7, top_k=5)
    resolved = resolve_generate(config, {"temperature": 0.0})
    assert (resolved.temperature, resolved.top_k) == (0.0, 5)
    assert config.temperature == 0.7
    assert resolve_generate(config, {}) is config
    assert resolve_load(None, {"gpu_layers": 0}).gpu_layers == 0


def test_keywords_are_checked_too() -> None:
    with pytest.raises(InvalidOptionError, match="temperature=nan"):
        resolve_generate(None, {"temperature": NAN})


GENERATE: Any = resolve_generate  # as a caller without a type checker sees them
CLASSIFY: Any = resolve_classify
LOAD: Any = resolve_load


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: GENERATE(None, {"labels": ("a",)}),
            r"generate\(\) has no option 'labels'",
        ),
        (lambda: CLASSIFY(None, {"max_tokens": 1}), r"classify\(\) has no option"),
        (lambda: GENERATE(None, {"temprature": 1}), "Did you mean 'temperature'"),
        (lambda: LOAD(None, {"backnd": "x"}), "Did you mean 'backend'"),
        (lambda: LOAD(GenerateConfig(), {}), "takes a LoadConfig"),
        (lambda: GENERATE({"seed": 1}, {}), "takes a GenerateConfig"),
        (lambda: GENERATE(None, {"top": 1}, "chat"), r"chat\(\) has no option 'top'"),
    ],
)
def test_a_wrong_keyword_or_config_is_a_type_error(call: Any, match: str) -> None:
    with pytest.raises(TypeError, match=match):
        call()


def test_a_config_may_carry_fields_of_other_operations() -> None:
    config = GenerateConfig(max_tokens=3, labels=("a", "b"))
    assert resolve_classify(config, {"label_prefix": ""}).max_tokens == 3
    assert resolve_generate(config, {"seed": 1}).labels == ("a", "b")


@pytest.mark.parametrize(
    ("options", "config"),
    [
        (GenerateOptions, GenerateConfig),
        (ClassifyOptions, GenerateConfig),
        (LoadOptions, LoadConfig),
    ],
)
def test_every_keyword_is_a_field(options: type, config: type) -> None:
    assert set(options.__annotations__) <= {field.name for field in dataclasses.fields(config)}


def test_every_field_is_a_keyword_of_some_operation() -> None:
    known = {*ChatOptions.__annotations__, *ClassifyOptions.__annotations__}
    assert known == {field.name for field in dataclasses.fields(GenerateConfig)}
    assert set(LoadOptions.__annotations__) == {f.name for f in dataclasses.fields(LoadConfig)}


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.lists(st.one_of(st.integers(), st.text(max_size=2)), max_size=3),
)


@given(
    option=st.sampled_from([field.name for field in dataclasses.fields(GenerateConfig)]),
    value=ANYTHING,
)
def test_any_value_gives_a_config_or_a_typed_error(option: str, value: Any) -> None:
    try:
        config = GenerateConfig(**{option: value})
    except (InvalidOptionError, LabelError):
        return
    assert GenerateConfig(**{option: getattr(config, option)}) == config
