"""Tasks in files: back bit by bit, read by hand-written ones, and refused where they are none."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import core_tasks
from core.errors import CalibrationError, TaskError
from core.testing import FakeModel
from core_tasks.files import from_toml, to_toml

STORED = Path(__file__).parent / "data" / "task_1.toml"
HEAD = 'format = 1\ntemplate = "{text}:"\nlabels = ["a", "b"]\n'


def likely(prompt: str, names: Sequence[str]) -> dict[str, float]:
    return {name: (place + len(prompt) / 99) / 9 for place, name in enumerate(names)}


MODEL = FakeModel(labels=likely)


def task() -> core_tasks.Task:
    plain = core_tasks.Task(
        '"{text}"\nThis\\is\x7f about',
        ("finance", "sports & games"),
        words={"finance": ("money", "\u0301é")},
        threshold=0.1 + 0.2,
        model="smollm2",
    )
    return plain.fit_prior(MODEL, ["a", "bb", "cccccc"], "batch")


def test_a_file_brings_it_back_bit_by_bit(tmp_path: Path) -> None:
    for saved in (task(), replace(task(), calibration=None), core_tasks.Task("{text}", ("1", "2"))):
        saved.save(tmp_path / "news.toml")
        loaded = core_tasks.load_task(tmp_path / "news.toml")
        assert loaded == saved
    many = core_tasks.Task("{text} {label}", ("law", "money"), mode="many")
    many.fit_prior(MODEL, ["a", "bbb"], "batch").save(tmp_path / "many.toml")
    loaded = core_tasks.load_task(tmp_path / "many.toml")
    assert loaded == many.fit_prior(MODEL, ["a", "bbb"], "batch")
    assert loaded.classify(MODEL, ["c"])[0].level == "batch"


def test_a_byte_order_mark_and_line_ends_of_windows_say_nothing(tmp_path: Path) -> None:
    file = tmp_path / "news.toml"
    by_hand = HEAD.replace("{text}:", "{text}\\nIt is about")
    for text in (to_toml(task()), by_hand):
        file.write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
        assert core_tasks.load_task(file) == from_toml(text)
        assert from_toml(file.read_bytes().decode()) == from_toml(text)


@given(st.text().filter(str.isprintable) | st.text(), st.floats(0, 1))
def test_any_text_and_number_is_kept(text: str, threshold: float) -> None:
    text = text.encode("utf-8", "replace").decode()
    text = text.replace("{", "(")
    saved = core_tasks.Task(f"{text}{{text}}", (f"a{text}", "b"), threshold=threshold, model=text)
    assert from_toml(to_toml(saved)) == saved
    assert tomllib.loads(to_toml(saved))["model"] == text


def test_the_stored_sample_of_the_format_is_read() -> None:
    fitted = task().calibration
    assert fitted is not None
    key = replace(fitted.key, model="5d005be14a46ab4b8049dcccd30add11")  # the fake's of that day
    assert core_tasks.load_task(STORED) == replace(task(), calibration=replace(fitted, key=key))


def test_one_that_is_written_by_hand_needs_little(tmp_path: Path) -> None:
    assert from_toml(HEAD) == core_tasks.Task("{text}:", ("a", "b"))
    assert from_toml(HEAD + '[words]\nb = ["c", "d"]\n').words == {"a": ("a",), "b": ("c", "d")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "`format` is missing; add format = 1 to a file written by hand"),
        ("format = '1'", "its format is '1', not a number from 1"),
        ("format = true", "its format is True, not"),
        ("format = 0", "its format is 0, not"),
        ("format = 2", "a task in format 2, .* up to 1. Upgrade to read it"),
        ("format = 0x" + "f" * 5_000, "a task in format a int that is too large to display"),
        ("format = " + "9" * 5_000, "a number with too many digits"),
        ("format = ", "it is not TOML: Invalid value .at end of document"),
        ("a." * 20_000 + "b = 1", "a key of more than 16 parts"),
        (HEAD + "a = " + "[" * 5000, "nested too deeply"),
        (
            HEAD + "treshold = 0.5",
            "it has the unknown key 'treshold'; the keys are calibration, fo",
        ),
        ("format = 1", "template is missing. Restore its file, or write it again"),
        (HEAD + 'mode = "two"', "is not valid: mode"),
        (HEAD + "mode = 3", "mode is 3, not a text"),
        (HEAD + "threshold = 7", "is not valid: threshold"),
        (HEAD + "threshold = nan", "threshold is nan, not a finite number"),
        (HEAD + "threshold = 1979-05-27", r"threshold is datetime.date\(1979, 5, 27\), not a fin"),
        (HEAD + "words = 3", "words is 3, not a table"),
        (HEAD + "words = ['a']", r"words is \['a'\], not a table"),
        (HEAD + "words = { a = 3 }", "words.a is 3, not a list"),
        (HEAD + "words = { a = [3] }", r"words.a\[0\] is 3, not a text"),
        (HEAD + "words = { c = [] }", "is not valid: words has the unknown label 'c'"),
        (HEAD + "label_prefix = 3", "label_prefix is 3, not a text"),
        (HEAD.replace('["a", "b"]', "3"), "labels is 3, not a list"),
        (HEAD.replace('["a", "b"]', '["1e200", "2"]\nmode = "levels"'), "within 1e.100 of 0"),
        (HEAD.replace("{text}", "text"), "must contain {text}"),
        (HEAD + "calibration = 3", "This is not a calibration: it is 3, not a table"),
        (HEAD + '[calibration]\nkind = "core.calibration"\nformat = 1', "words is missing"),
        (HEAD + '[calibration]\nkind = "core.calibration"\nformat = 2', "calibration in format 2"),
    ],
)
def test_what_is_no_task_is_a_typed_error(text: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        from_toml(text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"format = 1 # \xff")
    with pytest.raises(TaskError, match=r"latin': This is not a task: it is not UTF-8 .byte 13"):
        core_tasks.load_task(tmp_path / "latin")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(TaskError, match="is not a task: it is a pipe or a device"):
            core_tasks.load_task(path)
    with open(tmp_path / "large", "wb") as file:
        file.truncate(2**40)  # sparse: it takes no space on disk
    with pytest.raises(TaskError, match="large' is not a task: it is larger than"):
        core_tasks.load_task(tmp_path / "large")
    with pytest.raises(FileNotFoundError):
        core_tasks.load_task(tmp_path / "none")


def test_the_file_of_a_broken_task_or_calibration_is_named(tmp_path: Path) -> None:
    file = tmp_path / "news.toml"
    for text, error, message in (
        (HEAD + "mode = 3", TaskError, "This is not a task: mode is 3"),
        (HEAD + "threshold = 7", TaskError, "This task is not valid: threshold=7"),
        (
            HEAD + "[calibration]\nrows = 1",
            CalibrationError,
            "This is not a calibration: its kind is not 'core",
        ),
    ):
        file.write_text(text)
        with pytest.raises(error, match=f"^'{file}': {message}"):
            core_tasks.load_task(file)


def test_what_would_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="too large to be read again: it is larger than"):
        core_tasks.Task("{text}" + "x" * 2**25, ("a", "b")).save(tmp_path / "news.toml")
    assert not [*tmp_path.iterdir()]


def test_levels_far_apart_have_a_mean_and_a_spread() -> None:
    task = core_tasks.Task("{text}", ("-1e100", "1e100"), mode="levels")
    even = FakeModel(labels=lambda prompt, names: dict.fromkeys(names, 0.5))
    [decision] = task.classify(even, ["a"])
    assert decision.value == pytest.approx(0, abs=1e85)
    assert decision.spread == pytest.approx(1e100)


def test_a_calibration_in_a_file_serves_its_own_task_alone(tmp_path: Path) -> None:
    text = to_toml(task()).replace("about", "on", 1)  # the template by hand, not its calibration
    with pytest.raises(CalibrationError, match="fitted with template"):
        from_toml(text).classify(MODEL, ["a"])
