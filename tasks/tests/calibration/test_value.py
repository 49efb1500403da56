"""A calibration as a value: applied, refused where it does not belong, saved and read."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import CalibrationError, OutputError
from core_tasks.calibration import (
    Adjustment,
    Calibration,
    Key,
    load_calibration,
    pmi_prior,
    save_calibration,
)

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
    adjusted = calibration.apply(given)
    assert [*adjusted] == ["sports", "finance"]
    expected = calibration.adjustments[""]([-1.0, -2.0])
    assert [adjusted["finance"], adjusted["sports"]] == expected
    assert math.fsum(map(math.exp, adjusted.values())) == pytest.approx(1, abs=1e-12)
    for others in ({"finance": -1.0}, {"finance": -1.0, "sport": -2.0}):
        with pytest.raises(
            CalibrationError, match="is for the labels 'finance', 'sports', not 'finance'"
        ):
            calibration.apply(others)
    with pytest.raises(CalibrationError, match="not a log-probability"):
        calibration.apply({"finance": -1.0, "sports": math.nan})


def test_each_question_has_its_own_adjustment() -> None:
    key = Key("m", "{text} {label}", {"yes": ("yes",), "no": ("no",)}, ("a", "b"))
    adjustments = {"a": pmi_prior([0.0, -1.0]), "b": pmi_prior([-1.0, 0.0])}
    calibration = Calibration("L0", "pmi", key, ("yes", "no"), adjustments, 1)
    row = {"yes": -1.0, "no": -1.0}
    assert calibration.apply(row, "a")["yes"] < calibration.apply(row, "b")["yes"]
    with pytest.raises(CalibrationError):
        calibration.apply(row)
    assert Calibration.from_json(calibration.to_json()) == calibration


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "cd34"}, "with model 'ab12', not 'cd34'"),
        ({"template": "{text}"}, "with template '{text} This is about', not"),
        ({"words": {"finance": ("money",), "politics": ("politics",)}}, "with labels"),
        ({"words": WORDS | {"sports": ("sport",)}}, "with words"),
        ({"questions": ("a",)}, "with questions"),
        ({"label_prefix": ""}, "with label_prefix ' ', not ''"),
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
        ("", "is not a calibration: it is not JSON: Expecting value: line 1 column 1"),
        ("\xff", "not UTF-8 .byte 0"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", r"it is \[\], not a table"),
        ('{"kind": "core.task"}', "its kind is not 'core.calibration'"),
        ('{"kind": "core.calibration"}', "its format is None, not a number from 1"),
        ('{"kind": "core.calibration", "format": 0}', "its format is 0, not"),
        ('{"kind": "core.calibration", "format": "1"}', "its format is '1', not"),
        ('{"kind": "core.calibration", "format": 2}', "in format 2, .* up to 1. Upgrade to read"),
        ('{"kind": "core.calibration", "format": 1}', "words is missing. Restore its file"),
        ('{"kind": "core.calibration", "kind": "core.calibration"}', "the key 'kind' occurs tw"),
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ["finance", 3]}, r"labels\[1\] is 3, not a text"),
        ({"model": "\ud800"}, r"model is '\\ud800', which is not Unicode text"),
        ({"rows": 2**60}, "rows is 1152921504606846976, not a whole number from 0 to"),
        ({"words": {"finance": 3, "sports": []}}, "words.finance is 3, not a list"),
        ({"treshold": 1}, "it has the unknown key 'treshold'; the keys are adjustments, format"),
        ({"adjustments": [{"prior": []}]}, r"adjustments\[0\].knots is missing"),
        ({"adjustments": [{"knots": [[1, 2, 3]]}]}, r"knots\[0\] is \[1, 2, 3\], not a pair"),
        ({"adjustments": [{"knots": [[1, "a"]]}]}, r"knots\[0\]\[1\] is 'a', not a finite number"),
        ({"adjustments": []}, "it has 0 adjustments for 1 questions"),
        ({"adjustments": [{"knots": [], "prior": [0, 1e999]}]}, r"prior\[1\] is inf, not a fin"),
    ],
)
def test_a_broken_file_is_named_with_the_place_in_it(
    calibration: Calibration, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    file = tmp_path / "news.json"
    file.write_text(json.dumps(calibration.to_dict() | change))
    pattern = f"'{file}': This is not a calibration: .*{message}.*Restore its file, or fit it again"
    with pytest.raises(CalibrationError, match=pattern):
        load_calibration(file)


def test_what_is_not_a_file_of_text_is_not_read(calibration: Calibration, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(CalibrationError, match="is not a calibration: it is a pipe or a dev"):
            load_calibration(path)
    with open(tmp_path / "large", "wb") as file:
        file.truncate(2**40)  # sparse: it takes no space on disk
    with pytest.raises(CalibrationError, match="large' is not a calibration: it is larger than"):
        load_calibration(tmp_path / "large")


def test_what_would_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    key = Key("x" * 2**25, "{text}", WORDS)
    large = Calibration("L0", "pmi", key, tuple(WORDS), {"": Adjustment()}, 1)
    with pytest.raises(CalibrationError, match="too large to be read again: it is larger than"):
        save_calibration(large, tmp_path / "news.json")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("prior", "temperature", "knots"),
    [
        ((1e308, -1e308), 1.0, ()),
        ((math.nan, 0.0), 1.0, ()),
        ((), 1e-308, ()),
        ((), 1e308, ()),
        ((), -1.0, ()),
        ((), math.nan, ()),
        ((), 1.0, ((0.5, 0.9), (0.6, 1.0))),
        ((), 1.0, ((0.5, 0.0),)),
        ((), 1.0, ((0.5, math.nextafter(1, 0)),)),
        ((), 1.0, ((0.5, math.nan),)),
        ((), 1.0, ((0.5, 0.4), (0.5, 0.6))),
        ((), 1.0, ((0.5, 0.4), (0.6, 0.3))),
    ],
)
def test_numbers_that_would_end_in_nan_are_refused_in_files_and_in_values_alike(
    calibration: Calibration,
    prior: tuple[float, ...],
    temperature: float,
    knots: tuple[tuple[float, float], ...],
) -> None:
    with pytest.raises(CalibrationError):
        Adjustment(prior, temperature, knots)
    stored = {"prior": [*prior], "temperature": temperature, "knots": [[*knot] for knot in knots]}
    with pytest.raises(CalibrationError):
        Calibration.from_json(json.dumps(calibration.to_dict() | {"adjustments": [stored]}))


LIMITS = (0.0, 1e-12, 0.5, 1 - 1e-12, 1.0)
numbers = st.floats(allow_nan=False, allow_infinity=False)
shares = st.floats(0, 1) | st.sampled_from(LIMITS)
values = st.floats(-60, 0) | st.sampled_from([-math.inf, -1e300, 1e300, 0.0, -5e-324]) | numbers


@given(
    st.integers(1, 4).flatmap(
        lambda size: st.tuples(
            st.lists(values, min_size=size, max_size=size),
            st.lists(st.floats(-1e9, 1e9) | numbers, min_size=size, max_size=size) | st.just([]),
        )
    ),
    st.floats(1e-6, 1e6) | numbers,
    st.lists(st.tuples(shares, shares), max_size=4).map(sorted),
)
def test_what_can_be_made_makes_probabilities_of_any_row(
    row_and_prior: tuple[list[float], list[float]],
    temperature: float,
    knots: list[tuple[float, float]],
) -> None:
    row, prior = row_and_prior
    try:
        adjusted = Adjustment(tuple(prior), temperature, tuple(knots))(row)
    except CalibrationError:
        return
    assert math.fsum(map(math.exp, adjusted)) == pytest.approx(1, abs=1e-9)
    assert all(-math.inf <= value <= 1e-9 for value in adjusted)


def test_a_row_of_numbers_that_would_overflow_is_refused() -> None:
    for value in (1.1e300, -1.1e300):
        with pytest.raises(CalibrationError, match="not a log-probability"):
            Adjustment(temperature=1e-6)([value, 0.0])


def test_a_calibration_that_contradicts_itself_cannot_be_made() -> None:
    for labels, adjustments in (
        (("finance",), {"": Adjustment()}),
        (("finance", "sports"), {}),
        (("finance", "sports"), {"": pmi_prior([0.0, 0.0, 0.0])}),
    ):
        with pytest.raises(CalibrationError):
            Calibration("L0", "pmi", KEY, labels, adjustments, 1)
    for level, rows in (("raw", 1), ("L2", 1), ("L0", -1), ("L0", 2**60)):
        with pytest.raises(CalibrationError, match=r"level is|rows are"):
            Calibration(level, "pmi", KEY, tuple(WORDS), {"": Adjustment()}, rows)  # type: ignore[arg-type]
