"""Tasks in files: TOML, to be read, shared, and put under version control."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from core.calibration import Calibration
from core.errors import OptionError, TaskError
from core.system import outputs
from core.tasks.task import Task

FORMAT = 1
_MARK = "# Written by core.\n"
FILE = outputs.Kind("a task", re.compile(re.escape(_MARK).encode()))
"""How the file of a task is known to be one of this program's, and not a person's."""
_FIELDS = {
    *("format", "model", "template", "mode", "labels", "label_prefix", "threshold"),
    *("words", "calibration"),
}


def load_task(path: str | os.PathLike[str]) -> Task:
    """The task of a file, with its calibration if it has one.

    Raises `TaskError` for what is no task, and for one of a newer format, and OSError where the
    file cannot be read.
    """
    with open(path, "rb") as file:
        data = file.read()
    try:
        return from_toml(data.decode())
    except UnicodeDecodeError as error:
        raise TaskError(f"{os.fspath(path)!r} is no task: it is not UTF-8.") from error


def save_task(task: Task, path: str | os.PathLike[str]) -> None:
    """Write a task's file; raises like `Task.save`."""
    outputs.write(path, _MARK + to_toml(task), FILE)


def to_toml(task: Task) -> str:
    """The task as a TOML document."""
    facts: dict[str, object] = {
        "format": FORMAT,
        "model": task.model,
        "template": task.template,
        "mode": task.mode,
        "labels": [*task.labels],
        "label_prefix": task.label_prefix,
    }

    if task.threshold is not None:
        facts["threshold"] = float(task.threshold)

    # Words are written where they are others than the labels.
    lines = _lines(facts)
    if any(each != (answer,) for answer, each in task.words.items()):
        lines += ["", "[words]", *_lines({name: [*each] for name, each in task.words.items()})]
    if task.calibration is not None:
        lines += ["", "[calibration]", *_lines(task.calibration.to_dict())]
    return "\n".join([*lines, ""])


def from_toml(text: str) -> Task:
    """What `to_toml` wrote, or a person did. Raises `TaskError`."""
    import tomllib

    try:
        data = tomllib.loads(text.removeprefix("\ufeff"))  # an editor's byte order mark
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TaskError(
            f"This is no task, and no TOML: {error!s:.200}. Restore its file."
        ) from None
    form = data.get("format")
    if isinstance(form, bool) or not isinstance(form, int):
        raise TaskError("This is no task: it has no format. One that is written by hand says 1.")
    if form > FORMAT:
        raise TaskError(
            f"This task has format {form}, and this version of core reads up to {FORMAT}. Read it "
            "with a newer one."
        )
    if unknown := sorted(data.keys() - _FIELDS):
        known = ", ".join(sorted(_FIELDS))
        raise TaskError(f"A task has no {unknown[0]!r:.40}. It has {known}. Check the spelling.")
    return _read(data)


def _read(data: Mapping[str, Any]) -> Task:
    found = data.get("calibration")
    calibration = None if found is None else Calibration.from_dict(found)
    given = {name: data[name] for name in data.keys() - {"format", "calibration"}}
    try:
        return Task(**given, calibration=calibration)
    except (OptionError, TypeError, AttributeError) as error:
        raise TaskError(f"This task cannot be asked: {error!s:.300}") from error


def _lines(facts: Mapping[str, object]) -> list[str]:
    return [f"{_key(name)} = {_toml(value)}" for name, value in facts.items()]


def _toml(value: object) -> str:
    """A text, a number, or a list or a table of these, in one line."""
    if isinstance(value, str):
        # A text of JSON is one of TOML, but for the one control character that JSON leaves.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_toml(name)} = {_toml(each)}" for name, each in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else _toml(name)
