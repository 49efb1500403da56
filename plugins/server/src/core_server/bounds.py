"""The bounds of one request: its products are reckoned, and refused before they are built.

A body is bounded in bytes and values, but two short lists of it can make a long one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from core.tasks.task import Task
from core.wires.errors import OPENAI, Dialect

MAX_ROWS = 100_000
"""Prompts that a model is asked, texts that it makes."""
MAX_PROBABILITIES = 2_000_000
"""Of labels, in all rows."""
MAX_NUMBERS = 64_000_000
"""Float32 of logits and of hidden states, in all rows."""
MAX_CHARACTERS = 64_000_000
"""Of all prompts together."""
MAX_TOKENS = 8_000_000
"""Of all prompts together, where they are made of ids."""

MAX_TEXT = 4_000_000
"""Characters of a text that is tokenised for the request alone: no model refuses it before."""
MAX_WORDS = 1_000_000
"""Characters of labels, and of stop strings in all texts that are made side by side."""

TEXT_BYTES, ID_BYTES = 64, 40
"""Bytes that a character takes while it is tokenised, and an id afterwards."""
STOP_BYTES = 300
"""Bytes that a character of a stop string takes in the tree that finds it."""
ROW_BYTES, PROBABILITY_BYTES, NUMBER_BYTES = 1024, 128, 4
"""Bytes that they take in memory, as results; a probability beside its logarithm."""
_SIDE_BY_SIDE = 256
_FIT_TEXTS = 3  # `core.calibration.CONTENT_FREE`


def refuse_beyond(
    most: int, unit: str, factors: Mapping[str, int], dialect: Dialect = OPENAI
) -> int:
    """Return the product. Raises `WireError` where it is beyond ``most``."""
    whole = math.prod(factors.values())
    if whole > most:
        told = " x ".join(f"{_shown(number)} {name}" for name, number in factors.items())
        made = "" if len(factors) == 1 and unit in factors else f" make {_shown(whole)} {unit}"
        message = f"{told}{made}: one request has {most:,} {unit} at most. Ask in several."
        raise dialect.invalid((), message, "too_long")
    return whole


def _shown(number: int) -> str:
    return f"{number:,}" if number < 10**18 else "over 10**18"


def bytes_of_text(text: str) -> int:
    """Return what it takes to tokenise a text. Raises `WireError` for one that is too long."""
    return TEXT_BYTES * refuse_beyond(MAX_TEXT, "characters", {"characters": len(text)})


def bytes_of_stops(stops: Sequence[str], texts: int) -> int:
    """Return what finding stop strings takes. Raises `WireError` for too many."""
    factors = {
        "characters of stop strings": sum(map(len, stops)),
        "texts": min(texts, _SIDE_BY_SIDE),
    }
    return STOP_BYTES * refuse_beyond(MAX_WORDS, "characters of stop strings", factors)


def check_labels(labels: Sequence[str]) -> None:
    """Refuse labels that take seconds to tokenise, in which nobody is asked. Raises `WireError`."""
    unit = "characters of labels"
    refuse_beyond(MAX_WORDS, unit, {unit: sum(map(len, labels))})


def bytes_of_rows(rows: int, probabilities: int = 0, numbers: int = 0) -> int:
    """Return what results take. Raises `WireError` for more than one request may have."""
    for most, unit, count in (
        (MAX_ROWS, "rows", rows),
        (MAX_PROBABILITIES, "probabilities of labels", probabilities),
        (MAX_NUMBERS, "numbers", numbers),
    ):
        refuse_beyond(most, unit, {unit: count})
    return rows * ROW_BYTES + probabilities * PROBABILITY_BYTES + numbers * NUMBER_BYTES


def bytes_of_task(task: Task, texts: Sequence[str], level: str = "raw") -> int:
    """Return what the answers to these texts take, prompts included. Raises `WireError`."""
    check_labels(task.labels)
    rows, labels = len(texts), len(task.labels)
    asked = {"texts": rows} | ({"labels": labels} if task.mode == "many" else {})
    prompts = refuse_beyond(MAX_ROWS, "rows", asked)
    probabilities = refuse_beyond(
        MAX_PROBABILITIES, "probabilities", {"texts": rows, "labels": labels}
    )
    fitted = _FIT_TEXTS if level != "raw" else 0
    characters = (rows + fitted) * fixed_characters(task)
    characters += sum(map(len, texts)) * repeats(task)
    refuse_beyond(MAX_CHARACTERS, "characters of prompts", {"characters of prompts": characters})
    return characters + prompts * ROW_BYTES + probabilities * PROBABILITY_BYTES


def rows_at_once(task: Task, most: int) -> int:
    """Return how many texts may be asked about together, at least one."""
    each = len(task.questions)
    by_labels = min(MAX_ROWS // each, MAX_PROBABILITIES // len(task.labels))
    return max(1, min(most, by_labels, MAX_CHARACTERS // max(1, fixed_characters(task))))


def fixed_characters(task: Task) -> int:
    """Return the most that a text's prompts have beside the text."""
    own = len(task.template) * len(task.questions)
    return own + task.template.count("{label}") * sum(map(len, task.labels))


def repeats(task: Task) -> int:
    """Return how often a text stands in its prompts."""
    return task.template.count("{text}") * len(task.questions)
