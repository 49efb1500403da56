"""Examples from a file of JSON lines, or from the rows of a table; errors include the line number.

A line is an object in one of four forms: ``messages`` (role and content), ``prompt`` and
``completion``, ``text``, or ``text`` and ``label``. Other keys and blank lines are ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import CoreError, TrainingError
from core.kit.support import text_error
from core.messages import checked_conversation
from core.training import TrainingExample
from core_mlx_native.train.rows import form_of
from core_tasks.folds import main_labels, text_key

_SHOWN = 60  # characters of a line in an error
TABLES = (".csv", ".tsv", ".parquet", ".xlsx")
"""The suffixes of tables, which the command line reads."""

Records = Callable[[str], Iterable[tuple[str, Mapping[str, Any]]]]


@dataclass(frozen=True, slots=True)
class ExampleFields:
    """The names of the keys with a text and its label."""

    text: str = "text"
    label: str = "label"


def read_examples(
    path: str | os.PathLike[str],
    fields: ExampleFields | None = None,
    records: Records | None = None,
) -> list[TrainingExample]:
    """Return the examples of a file, in order.

    ``records`` reads the rows of a table, such as CSV, each with its place. Raises
    `TrainingError` for an empty file or an invalid line, OSError for an unreadable file.
    """
    keys = fields or ExampleFields()
    if records is not None and Path(path).suffix.lower() in TABLES:
        examples = [
            _example_of(row, f"{os.fspath(path)}, {place}", keys)
            for place, row in records(os.fspath(path))
        ]
        if not examples:
            raise TrainingError(f"{os.fspath(path)} has no examples.")
        return examples
    data = Path(path).read_bytes()
    examples = [
        _example(line, f"{os.fspath(path)}, line {number}", keys)
        for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
        if line.strip()
    ]
    if not examples:
        raise TrainingError(f"{os.fspath(path)} has no examples. Write one JSON object per line.")
    return examples


def split_by_label(
    examples: Sequence[TrainingExample], share: float, seed: int
) -> tuple[list[TrainingExample], list[TrainingExample]]:
    """Return the examples to learn, and a share per label to hold out, drawn with the seed.

    Texts are drawn, with all their examples: a duplicate text is never both learned and held out.
    Raises `TrainingError` if a label, or all examples, would have none left to learn from.
    """
    import numpy as np

    draw = np.random.default_rng(seed)
    names = sorted({example.label or "" for example in examples})
    labels = main_labels(
        [_prompt_of(example) for example in examples],
        [names.index(example.label or "") for example in examples],
    )
    held_out = set[str]()
    for number, name in enumerate(names):
        texts = [text for text, label in labels.items() if label == number]
        count = max(1, round(share * len(texts)))
        if count >= len(texts):
            raise TrainingError(
                f"The label {name!r} has {len(texts)} different texts, and holding out {count} "
                "leaves none to train on. Add texts, or hold out a smaller share."
            )
        held_out.update(texts[place] for place in draw.permutation(len(texts))[:count])
    learned = [example for example in examples if text_key(_prompt_of(example)) not in held_out]
    return learned, [example for example in examples if text_key(_prompt_of(example)) in held_out]


def shared_texts(some: Sequence[TrainingExample], others: Sequence[TrainingExample]) -> int:
    """Return the number of examples in ``some`` whose text also occurs in ``others``."""
    known = {text_key(_prompt_of(example)) for example in others}
    return sum(text_key(_prompt_of(example)) in known for example in some)


def _prompt_of(example: TrainingExample) -> str:
    """Return the input part of an example, without the answer to learn."""
    messages = example.messages
    if messages and messages[-1].role == "assistant":
        messages = messages[:-1]
    return example.text or example.prompt or repr(messages)


def _example(line: bytes, where: str, keys: ExampleFields) -> TrainingExample:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        shown = line[:_SHOWN].decode("utf-8", "replace")
        raise TrainingError(f"{where}: not valid JSON ({error}): {shown!r}") from None
    if not isinstance(row, dict):
        raise TrainingError(f"{where}: expected an object, got {_kind(row)}.")
    return _example_of(row, where, keys)


def _example_of(row: Mapping[str, Any], where: str, keys: ExampleFields) -> TrainingExample:
    try:
        example = _of_row(row, keys)
        form_of(example)
    except (CoreError, TypeError, ValueError) as error:
        raise TrainingError(f"{where}: {error}") from None
    return example


def _of_row(row: Mapping[str, Any], keys: ExampleFields) -> TrainingExample:
    if "messages" in row:
        return TrainingExample(messages=tuple(checked_conversation(row["messages"])))
    if "completion" in row:
        prompt, completion = (_text(row, key) for key in ("prompt", "completion"))
        return TrainingExample(prompt=prompt, completion=completion)
    if keys.text not in row:
        known = f"messages, prompt and completion, or {keys.text} (optionally with {keys.label})"
        raise ValueError(f"it has {_names(row)}, but an example needs {known}.")
    label = _text(row, keys.label) if row.get(keys.label) is not None else None
    text = _text(row, keys.text)
    if not text:
        raise ValueError(f"{keys.text} is empty.")
    return TrainingExample(text=text, label=label)


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} is {_kind(value)}, not a text.")
    if value and (error := text_error(value, key)):
        raise error
    return value


def _names(row: Mapping[str, Any]) -> str:
    return ", ".join(map(str, row)) or "no key"


def _kind(value: object) -> str:
    return "missing" if value is None else type(value).__name__
