"""Tasks in TOML files, which can be read, shared, and put under version control."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from core.errors import OptionError, TaskError
from core.system import outputs
from core.system.fields import Fields
from core.system.limited_files import FileKind, Refused, check_format, toml_table
from core_tasks.calibration import Calibration
from core_tasks.calibration.value import sentence_field
from core_tasks.task import Task

FORMAT = 1
READING = FileKind("a task", TaskError, "Restore its file, or write it again.")
_MARK = "# Written by core.\n"
FILE = outputs.Kind("a task", re.compile(re.escape(_MARK).encode()))
"""The kind of task files that this program wrote, recognised by their first line."""
_FIELDS = {
    *("format", "model", "template", "mode", "labels", "label_prefix", "threshold"),
    *("label_sentence", "words", "calibration"),
}


def load_task(path: str | os.PathLike[str]) -> Task:
    """Return the task of a file, with its calibration if it has one.

    Raises `TaskError` for a file that is not a task, or has a newer format, and OSError if it
    cannot be read.
    """
    data = READING.read(path)
    with READING.named(path):
        return from_toml(data)


def save_task(task: Task, path: str | os.PathLike[str]) -> None:
    """Write a task's file; raises like `Task.save`."""
    outputs.write(path, READING.writable(_MARK + to_toml(task)), FILE)


def to_toml(task: Task) -> str:
    """Return the task as a TOML document."""
    facts: dict[str, object] = {
        "format": FORMAT,
        "model": task.model,
        "template": task.template,
        "mode": task.mode,
        "labels": [*task.labels],
        "label_prefix": task.label_prefix,
        **sentence_field(task.label_sentence),
    }

    if task.threshold is not None:
        facts["threshold"] = float(task.threshold)

    # Words are written if they differ from the labels.
    lines = _lines(facts)
    if any(words != (answer,) for answer, words in task.words.items()):
        lines += ["", "[words]", *_lines({name: [*words] for name, words in task.words.items()})]
    if task.calibration is not None:
        lines += ["", "[calibration]", *_lines(task.calibration.to_dict())]
    return "\n".join([*lines, ""])


def from_toml(text: str | bytes) -> Task:
    """Return the task in a TOML document. Raises `TaskError`."""
    with READING.errors():
        return _read(Fields(toml_table(text)))


def _read(data: Fields) -> Task:
    if "format" not in data.values:
        raise Refused("`format` is missing; add format = 1 to a file written by hand")
    check_format(data.values["format"], FORMAT)
    data.only(_FIELDS)

    optional: dict[str, Any] = {
        name: data.text(name)
        for name in ("mode", "label_prefix", "label_sentence", "model")
        if data.given(name)
    }
    if data.given("words"):
        words = data.table("words")
        optional["words"] = {answer: words.texts(answer) for answer in map(str, words.values)}
    if data.given("threshold"):
        optional["threshold"] = data.number("threshold")
    if data.given("calibration"):
        optional["calibration"] = Calibration.from_dict(data.values["calibration"])
    template, labels = data.text("template"), data.texts("labels")
    try:
        return Task(template, labels, **optional)
    except OptionError as error:
        raise TaskError(f"This task is not valid: {error}") from error


def _lines(facts: Mapping[str, object]) -> list[str]:
    return [f"{_key(name)} = {_toml(value)}" for name, value in facts.items()]


def _toml(value: object) -> str:
    """Return a text, a number, or a list or a table of these, in one line."""
    if isinstance(value, str):
        # A JSON string is a TOML string, except for the one control character that JSON keeps.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_toml(name)} = {_toml(item)}" for name, item in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else _toml(name)
