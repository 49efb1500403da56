"""A calibration as a value: applied, refused where it does not belong, saved and read."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from core.calibration import (
    Adjustment,
    Calibration,
    Key,
    load_calibration,
    pmi_prior,
    save_calibration,
)
from core.errors import CalibrationError, OutputError

WORDS = {"finance": ("finance", "money"), "sports": ("sports",)}
KEY = Key("ab12", "{text} This is about", WORDS)
KNOTS = ((0.5, 0.4), (0.1 + 0.8, 0.75))
STORED = Path(__file__).parents[1] / "data" / "calibration_1.json"


@pytest.fixture
def calibration() -> Calibration:
    adjustment = replace(pmi_prior([-1.0, -3.0]), temperature=1 / 3, knots=KNOTS)
    labels = ("finance", "sports")
    return Calibration("L1", "pmi+isotonic", KEY, labels, {"": adjustment}, 2)


def test_it_applies_to_labels_by_name(calibration: Calibration) -> None:
    given = {"sports": -2.0, "finance": -1.0}
    found = calibration.apply(given)
    assert [*found] == ["sports", "finance"]
    expected = calibration.adjustments[""]([-1.0, -2.0])
    assert [found["finance"], found["sports"]] == expected
    assert math.fsum(map(math.exp, found.values())) == pytest.approx(1, abs=1e-12)
    for others in ({"finance": -1.0}, {"finance": -1.0, "sport": -2.0}):
        with pytest.raises(CalibrationError, match="is for 'finance', 'sports', not for 'finance'"):
            calibration.apply(others)
    with pytest.raises(CalibrationError, match="no log-probability"):
        calibration.apply({"finance": -1.0, "sports": math.nan})


def test_each_question_has_its_own_adjustment() -> None:
    key = Key("m", "{text} {label}", {"yes": ("yes",), "no": ("no",)}, ("a", "b"))
    adjustments = {"a": pmi_prior([0.0, -1.0]), "b": pmi_prior([-1.0, 0.0])}
    made = Calibration("L0", "pmi", key, ("yes", "no"), adjustments, 1)
    row = {"yes": -1.0, "no": -1.0}
    assert made.apply(row, "a")["yes"] < made.apply(row, "b")["yes"]
    with pytest.raises(CalibrationError):
        made.apply(row)
    assert Calibration.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "cd34"}, "another model: 'ab12', and here it is 'cd34'"),
        ({"template": "{text}"}, "another template: '{text} This is about', and here"),
        ({"words": {"finance": ("money",), "politics": ("politics",)}}, "another labels"),
        ({"words": WORDS | {"sports": ("sport",)}}, "another words"),
        ({"questions": ("a",)}, "another questions"),
        ({"label_prefix": ""}, "another label_prefix: ' ', and here it is ''"),
    ],
)
def test_it_is_refused_by_name_where_it_does_not_belong(
    calibration: Calibration, change: dict[str, str], message: str
) -> None:
    with pytest.raises(CalibrationError, match=message):
        calibration.check(replace(KEY, **change))  # type: ignore[arg-type]


def test_the_order_of_labels_and_words_is_of_no_account(calibration: Calibration) -> None:
    turned = {"sports": ("sports",), "finance": ("money", "finance")}
    calibration.check(replace(KEY, words=turned))


def test_its_file_brings_it_back_bit_by_bit(calibration: Calibration, tmp_path: Path) -> None:
    file = tmp_path / "news.json"
    file.write_text(replace(calibration, rows=1).to_json())
    file.chmod(0o640)
    save_calibration(calibration, file)
    assert load_calibration(file) == calibration
    assert os.listdir(tmp_path) == ["news.json"]
    assert file.stat().st_mode & 0o777 == 0o640
    with pytest.raises(OutputError, match="nowhere"):
        save_calibration(calibration, tmp_path / "nowhere" / "news.json")


def test_a_byte_order_mark_says_nothing(calibration: Calibration, tmp_path: Path) -> None:
    file, text = tmp_path / "news.json", calibration.to_json().replace("\n", "\r\n")
    file.write_text(text, encoding="utf-8-sig")
    assert load_calibration(file) == Calibration.from_json("\ufeff" + text) == calibration


def test_the_stored_sample_of_the_format_is_read(calibration: Calibration) -> None:
    assert load_calibration(STORED) == calibration


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ("\xff", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "'core.calibration' is not its kind"),
        ('{"kind": "core.task"}', "is not its kind"),
        ('{"kind": "core.calibration", "format": 2}', "has format 2, .* reads up to 1"),
        ('{"kind": "core.calibration", "format": 1}', "broken: KeyError"),
    ],
)
def test_what_is_no_calibration_is_refused(text: str, message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        Calibration.from_json(text.encode("latin-1"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("level", "raw"),
        ("level", ["L0"]),
        ("method", 1),
        ("rows", -1),
        ("rows", True),
        ("model", None),
        ("labels", "finance"),
        ("labels", ["finance"]),
        ("labels", ["finance", "finance"]),
        ("labels", ["finance", "politics"]),
        ("questions", ["a", "b"]),
        ("words", []),
        ("words", {"finance": "money", "sports": []}),
        ("adjustments", []),
        ("adjustments", [{}]),
        ("adjustments", [{"prior": [0.0], "temperature": 1.0, "knots": []}]),
        ("adjustments", [{"prior": ["a", 1.0], "temperature": 1.0, "knots": []}]),
        ("adjustments", [{"prior": [], "temperature": 0, "knots": []}]),
        ("adjustments", [{"prior": [], "temperature": 10**400, "knots": []}]),
        ("adjustments", [{"prior": [], "temperature": 1.0, "knots": [[1]]}]),
        ("adjustments", [{"prior": [math.nan, 0.0], "temperature": 1.0, "knots": []}]),
    ],
)
def test_a_broken_file_is_a_typed_error(calibration: Calibration, name: str, value: object) -> None:
    with pytest.raises(CalibrationError):
        Calibration.from_json(json.dumps(calibration.to_dict() | {name: value}))


def test_a_calibration_that_contradicts_itself_cannot_be_made() -> None:
    for labels, adjustments in (
        (("finance",), {"": Adjustment()}),
        (("finance", "sports"), {}),
        (("finance", "sports"), {"": pmi_prior([0.0, 0.0, 0.0])}),
    ):
        with pytest.raises(CalibrationError):
            Calibration("L0", "pmi", KEY, labels, adjustments, 1)
