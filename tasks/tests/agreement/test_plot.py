"""The drawing of a report: sound XML whatever the labels are, with what it says it shows."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tasks.agreement import Agreement, svg
from core_tasks.agreement.plot import _compact

NAMESPACE = "{http://www.w3.org/2000/svg}"


def words(drawing: str) -> list[str]:
    root = ElementTree.fromstring(drawing)
    return [element.text or "" for element in root.iter(f"{NAMESPACE}text")]


def bars(drawing: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(drawing)
    return [element for element in root.iter(f"{NAMESPACE}rect") if element.get("class") != "frame"]


def test_bars_and_cells_are_those_of_the_report() -> None:
    agreement = Agreement(bins=2)
    for gold, label, probability in [
        *[("a", "a", 0.25), ("a", "b", 0.25), ("a", "a", 0.9), ("b", "b", 0.9)],
        ("b", None, None),
    ]:
        agreement.add(gold, label, probability)
    drawing = svg(json.loads(json.dumps(agreement.to_dict())), title="My <test>")
    titles = [bar[0].text for bar in bars(drawing)]
    assert titles == [
        *["probability 0.00 to 0.50: 2 rows, 50.0% right, 25.0% expected"] * 2,
        *["probability 0.50 to 1.00: 2 rows, 100.0% right, 90.0% expected"] * 2,
        *["a as a: 2 rows, 66.7%", "a as b: 1 rows, 33.3%"],
        *["b as b: 1 rows, 50.0%", "b as no answer: 1 rows, 50.0%"],
    ]
    heights = [float(bar.get("height", "")) for bar in bars(drawing)[:4]]
    assert heights == [150.0, 60.0, 300.0, 60.0]
    shown = words(drawing)
    assert shown[0] == "My <test>"
    assert shown[1].startswith("5 rows, 80.0% answered, accuracy 75.0% (95 %: 30.1% to 95.4%)")
    assert "no answer" in shown


def test_labels_that_are_too_many_are_counted_not_shown() -> None:
    agreement = Agreement()
    for number in range(20):
        for _ in range(20 - number):
            agreement.add(f"label {number:02d}", f"label {number:02d}")
    shown = words(svg(agreement.to_dict(), labels=5))
    assert "label 04" in shown
    assert "label 05" not in shown
    assert "15 more labels, with 120 rows, are not shown" in shown
    assert "no probabilities" in shown
    assert not any("not shown" in word for word in words(svg(agreement.to_dict(), labels=20)))


def test_a_report_of_nothing_is_drawn() -> None:
    assert "0 rows, none answered" in words(svg(Agreement().to_dict()))


@given(st.lists(st.text(), min_size=1, max_size=5), st.text())
def test_no_label_breaks_the_drawing(labels: list[str], title: str) -> None:
    agreement = Agreement()
    for label in [*labels, "</svg><script>", "\x00\uffff\ufffe\u202e", "\ud800"]:
        agreement.add(label, label, 0.5)
    drawing = svg(agreement.to_dict(), title=title)
    ElementTree.fromstring(drawing.encode())
    assert "<script" not in drawing
    assert "\u202e" not in drawing


@pytest.mark.parametrize(
    ("rows", "shown"),
    [(7, "7"), (999, "999"), (1000, "1k"), (1234, "1.23k"), (123_456, "123k"), (999_999, "1M")],
)
def test_numbers_in_cells_are_short(rows: int, shown: str) -> None:
    assert _compact(rows) == shown
