"""Examples from a file of JSON lines; what is wrong with one is said with its line's number.

A line is an object in one of four forms: ``messages`` (role and content), ``prompt`` and
``completion``, ``text``, or ``text`` and ``label``. Other keys are passed over. Blank lines too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import CoreError, TrainingError
from core.messages import checked_conversation
from core.support import text_error
from core.tasks.folds import main_labels, text_key
from core.training import TrainingExample
from core_mlx_native.train.rows import form_of

_SHOWN = 60  # characters of a line in an error


@dataclass(frozen=True, slots=True)
class Fields:
    """The names of the keys that hold a text and its label."""

    text: str = "text"
    label: str = "label"


def read_examples(
    path: str | os.PathLike[str], fields: Fields | None = None
) -> list[TrainingExample]:
    """The examples of a file, in order.

    Raises `TrainingError` for a file that is empty, or has a line that is no example; OSError for
    one that cannot be read.
    """
    keys = fields or Fields()
    data = Path(path).read_bytes()
    examples = [
        _example(line, f"{os.fspath(path)}, line {number}", keys)
        for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)
        if line.strip()
    ]
    if not examples:
        raise TrainingError(f"{os.fspath(path)} has no line with an example. Give one a line.")
    return examples


def split_by_label(
    examples: Sequence[TrainingExample], share: float, seed: int
) -> tuple[list[TrainingExample], list[TrainingExample]]:
    """Examples to learn, and a share of them to hold out; of each label alike, drawn by the seed.

    Texts are drawn, with all examples of each: a text that occurs twice is not both learned
    and judged. Raises `TrainingError` where a label, or all examples, would have none left to
    learn from.
    """
    import numpy as np

    draw = np.random.default_rng(seed)
    names = sorted({each.label or "" for each in examples})
    labels = main_labels(
        [_asked(each) for each in examples], [names.index(each.label or "") for each in examples]
    )
    held = set[str]()
    for number, name in enumerate(names):
        texts = [text for text, label in labels.items() if label == number]
        count = max(1, round(share * len(texts)))
        if count >= len(texts):
            raise TrainingError(
                f"The label {name!r} has {len(texts)} different texts, of which {count} would be "
                "held out: none is left to learn from. Give more, or hold out a smaller share."
            )
        held.update(texts[place] for place in draw.permutation(len(texts))[:count])
    kept = [each for each in examples if text_key(_asked(each)) not in held]
    return kept, [each for each in examples if text_key(_asked(each)) in held]


def shared_texts(some: Sequence[TrainingExample], others: Sequence[TrainingExample]) -> int:
    """Return how many of some examples have a text that others have as well."""
    known = {text_key(_asked(each)) for each in others}
    return sum(text_key(_asked(each)) in known for each in some)


def _asked(example: TrainingExample) -> str:
    """Return the part of an example that the model reads, without what it is to learn to answer."""
    messages = example.messages
    if messages and messages[-1].role == "assistant":
        messages = messages[:-1]
    return example.text or example.prompt or repr(messages)


def _example(line: bytes, where: str, keys: Fields) -> TrainingExample:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        shown = line[:_SHOWN].decode("utf-8", "replace")
        raise TrainingError(f"{where}: this is no JSON ({error}): {shown!r}") from None
    if not isinstance(row, dict):
        raise TrainingError(f"{where}: this is no object, but {_kind(row)}.")
    try:
        example = _of_row(row, keys)
        form_of(example)
    except (CoreError, TypeError, ValueError) as error:
        raise TrainingError(f"{where}: {error}") from None
    return example


def _of_row(row: Mapping[str, Any], keys: Fields) -> TrainingExample:
    if "messages" in row:
        return TrainingExample(messages=tuple(checked_conversation(row["messages"])))
    if "completion" in row:
        prompt, completion = (_text(row, key) for key in ("prompt", "completion"))
        return TrainingExample(prompt=prompt, completion=completion)
    if keys.text not in row:
        known = f"messages, prompt and completion, or {keys.text} (with or without {keys.label})"
        raise ValueError(f"it has {_names(row)}, and an example has {known}.")
    label = _text(row, keys.label) if row.get(keys.label) is not None else None
    text = _text(row, keys.text)
    if not text:
        raise ValueError(f"its {keys.text} is empty.")
    return TrainingExample(text=text, label=label)


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise ValueError(f"its {key} is {_kind(value)}, not a text.")
    if value and (error := text_error(value, key)):
        raise error
    return value


def _names(row: Mapping[str, Any]) -> str:
    return ", ".join(map(str, row)) or "no key"


def _kind(value: object) -> str:
    return "missing" if value is None else type(value).__name__
