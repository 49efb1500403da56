"""The table in pyproject.toml, and the order in which settings win."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from core_conformance.checking.check import generated
from core_conformance.checking.subject import Effort
from core_conformance.running import settings
from core_conformance.running.known import UsageError
from core_conformance.running.report import _shown
from core_conformance.running.settings import Settings, nearest_table, pairs

TABLE = """
[tool.core-conformance]
backend = "mine"
model = "models/tiny"
timeout = 60
isolate = true
[tool.core-conformance.options]
threads = 2
[tool.core-conformance.known-failures]
stop.leaks = "why, link"
"""


def test_the_nearest_table_with_its_model_beside_it(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(TABLE)
    wanted = Settings(
        "mine", str(tmp_path / "models/tiny"), {"threads": 2}, {"stop.leaks": "why, link"}, 60, True
    )
    assert nearest_table(below) == wanted
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\n")
    assert nearest_table(below) == Settings()


@pytest.mark.parametrize("address", ["http://host:8080#name", "grpc://host:50051/name"])
def test_an_address_in_the_table_is_not_beside_it(tmp_path: Path, address: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.core-conformance]\nmodel = {address!r}")
    assert nearest_table(tmp_path).model == address


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("backend = 1", "Expected `str.*backend"),
        ("bakend = 'mine'", "unknown field `bakend`. Valid keys: backend, model, timeout, "),
        (
            "known_failures = {}",
            "known_failures.*prompts, labels, adapters, options, known-failures",
        ),
        ("timeout = 0", "expected a finite number of seconds above 0"),
        ("timeout = inf", "expected a finite number of seconds above 0"),
        ("known-failures = {a = ''}", "'a' has no reason"),
        ("backend = ", "pyproject.toml cannot be used"),
        ("timeout = " + "9" * 5_000, "cannot be used: it has a number with too many digits"),
        ("a." * 20_000 + "b = 1", "cannot be used: it has a key of more than 16 parts"),
        ("backend = '\udcff'", "cannot be used: it is not UTF-8"),
    ],
    ids=range(10),
)
def test_a_mistake_in_the_table_is_named(tmp_path: Path, table: str, words: str) -> None:
    data = f"[tool.core-conformance]\n{table}".encode(errors="surrogateescape")
    (tmp_path / "pyproject.toml").write_bytes(data)
    with pytest.raises(UsageError, match=words):
        nearest_table(tmp_path)


def test_a_table_that_is_none_is_named(tmp_path: Path) -> None:
    for text, words in (
        ("tool.core-conformance = 3", "Expected `object`, got `int`"),
        ("tool.core-conformance = 0", "Expected `object`, got `int`"),
    ):
        (tmp_path / "pyproject.toml").write_text(text)
        with pytest.raises(UsageError, match=words):
            nearest_table(tmp_path)
    (tmp_path / "pyproject.toml").write_text("tool = 3")
    assert nearest_table(tmp_path) == Settings()


def test_what_is_given_wins_and_the_rest_comes_from_the_other() -> None:
    other = Settings("mine", "m", {"a": 1, "b": 1}, {"x": "why"}, 5, True)
    assert Settings().over(other) == other
    given = Settings(None, "n", {"b": 2}, {}, 6, False)
    assert given.over(other) == Settings("mine", "n", {"a": 1, "b": 2}, {}, 6, False)


def test_settings_for_another_backend_do_not_apply() -> None:
    given = Settings("yours")
    assert given.over(Settings("mine", "m", {"a": 1}, {"x": "why"}, 5)) == given


def test_what_was_not_named_is_asked_for() -> None:
    with pytest.raises(UsageError, match="No backend"):
        Settings(model="m").target()
    with pytest.raises(UsageError, match="No model"):
        Settings("mine").target()


def test_pairs_are_json_where_they_can_be() -> None:
    texts = ["a=3", "b=true", "c=cpu", 'd="3"', "e=", "f=x=y"]
    wanted = {"a": 3, "b": True, "c": "cpu", "d": "3", "e": "", "f": "x=y"}
    assert pairs(texts) == wanted
    for wrong in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(UsageError):
            pairs(wrong)


def test_a_deep_run_shares_its_seconds_and_has_a_seed() -> None:
    settings = Settings("mine", deep=70.0)
    one, other = settings.effort(), settings.effort()
    assert one.deep
    assert one.seconds == 70.0 / len(generated())
    assert one.seed != other.seed
    assert Settings("mine", deep=70.0, seed=7).effort().seed == 7
    assert Settings("mine", deep=math.inf).effort().seconds == 60


def test_without_one_the_seed_is_fixed() -> None:
    assert Settings("mine").effort() == Effort()
    assert Settings("mine", seed=7).effort() == Effort(seed=7)
    assert Settings("mine").over(Settings("mine", seed=3, deep=1.0)).effort().seed == 3


def test_nothing_is_not_deep() -> None:
    with pytest.raises(UsageError, match="above 0"):
        settings.deep(0.0)


def test_a_key_is_in_no_repr_and_no_report() -> None:
    options = {"api_key": "sk-MARKED", "env": {"HF_TOKEN": "sk-MARKED"}, "connections": 2}
    settings = Settings("remote", "http://127.0.0.1:1", options)
    assert "sk-MARKED" not in repr(settings) + repr(settings.target())
    assert _shown(options) == {"api_key": "...", "env": "...", "connections": 2}
    with pytest.raises(UsageError) as refused:
        pairs(["api_key:sk-MARKED"])
    assert "sk-MARKED" not in str(refused.value)
