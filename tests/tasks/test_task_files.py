"""Tasks in files: back bit by bit, read by hand-written ones, and refused where they are none."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import core
from core.errors import CalibrationError, TaskError
from core.tasks.files import from_toml, to_toml
from core.testing import FakeModel

STORED = Path(__file__).parents[1] / "data" / "task_1.toml"
HEAD = 'format = 1\ntemplate = "{text}:"\nlabels = ["a", "b"]\n'


def likely(prompt: str, names: Sequence[str]) -> dict[str, float]:
    return {name: (place + len(prompt) / 99) / 9 for place, name in enumerate(names)}


MODEL = FakeModel(labels=likely)


def task() -> core.Task:
    plain = core.Task(
        '"{text}"\nThis\\is\x7f about',
        ("finance", "sports & games"),
        words={"finance": ("money", "\u0301é")},
        threshold=0.1 + 0.2,
        model="smollm2",
    )
    return plain.fit_prior(MODEL, ["a", "bb", "cccccc"])


def test_a_file_brings_it_back_bit_by_bit(tmp_path: Path) -> None:
    for saved in (task(), replace(task(), calibration=None), core.Task("{text}", ("1", "2"))):
        saved.save(tmp_path / "news.toml")
        loaded = core.load_task(tmp_path / "news.toml")
        assert loaded == saved
    many = core.Task("{text} {label}", ("law", "money"), mode="many")
    many.fit_prior(MODEL, ["a", "bbb"]).save(tmp_path / "many.toml")
    loaded = core.load_task(tmp_path / "many.toml")
    assert loaded == many.fit_prior(MODEL, ["a", "bbb"])
    assert loaded.classify(MODEL, ["c"])[0].level == "L0"


def test_a_byte_order_mark_and_line_ends_of_windows_say_nothing(tmp_path: Path) -> None:
    file = tmp_path / "news.toml"
    by_hand = HEAD.replace("{text}:", "{text}\\nIt is about")
    for text in (to_toml(task()), by_hand):
        file.write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
        assert core.load_task(file) == from_toml(text)
        assert from_toml(file.read_bytes().decode()) == from_toml(text)


@given(st.text().filter(str.isprintable) | st.text(), st.floats(0, 1))
def test_any_text_and_number_is_kept(text: str, threshold: float) -> None:
    text = text.encode("utf-8", "replace").decode()
    text = text.replace("{", "(")
    saved = core.Task(f"{text}{{text}}", (f"a{text}", "b"), threshold=threshold, model=text)
    assert from_toml(to_toml(saved)) == saved
    assert tomllib.loads(to_toml(saved))["model"] == text


def test_the_stored_sample_of_the_format_is_read() -> None:
    fitted = task().calibration
    assert fitted is not None
    key = replace(fitted.key, model="5d005be14a46ab4b8049dcccd30add11")  # the fake's of that day
    assert core.load_task(STORED) == replace(task(), calibration=replace(fitted, key=key))


def test_one_that_is_written_by_hand_needs_little(tmp_path: Path) -> None:
    assert from_toml(HEAD) == core.Task("{text}:", ("a", "b"))
    assert from_toml(HEAD + '[words]\nb = ["c", "d"]\n').words == {"a": ("a",), "b": ("c", "d")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no format"),
        ("format = '1'", "has no format"),
        ("format = true", "has no format"),
        ("format = 2", "has format 2, .* reads up to 1"),
        ("format = ", "no TOML"),
        (HEAD + "a = " + "[" * 5000, "no TOML"),
        (HEAD + "treshold = 0.5", "A task has no 'treshold'"),
        ("format = 1", "cannot be asked: .*template"),
        (HEAD + 'mode = "two"', "cannot be asked: mode"),
        (HEAD + "threshold = 7", "cannot be asked: threshold"),
        (HEAD + "words = 3", "cannot be asked"),
        (HEAD + "words = ['a']", "cannot be asked"),
        (HEAD + "words = { a = 3 }", "cannot be asked: words"),
        (HEAD + "label_prefix = 3", "cannot be asked: label_prefix"),
        (HEAD.replace('["a", "b"]', "3"), "cannot be asked: labels"),
        (HEAD.replace("{text}", "text"), "has no {text}"),
        (HEAD + "calibration = 3", "is no calibration"),
        (HEAD + '[calibration]\nkind = "core.calibration"\nformat = 1', "broken"),
        (HEAD + '[calibration]\nkind = "core.calibration"\nformat = 2', "has format 2"),
    ],
)
def test_what_is_no_task_is_a_typed_error(text: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        from_toml(text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"format = 1 # \xff")
    with pytest.raises(TaskError, match="not UTF-8"):
        core.load_task(tmp_path / "latin")
    with pytest.raises(FileNotFoundError):
        core.load_task(tmp_path / "none")


def test_a_calibration_in_a_file_serves_its_own_task_alone(tmp_path: Path) -> None:
    text = to_toml(task()).replace("about", "on", 1)  # the template by hand, not its calibration
    with pytest.raises(CalibrationError, match="another template"):
        from_toml(text).classify(MODEL, ["a"])
