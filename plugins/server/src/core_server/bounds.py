"""The bounds of one request: its products are computed, and refused before they are built.

A body is bounded in bytes and values, but two short lists in it can make a long one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from core.options import LABEL_PLACE, LABEL_SENTENCE
from core_server.questions import Question
from core_tasks.calibration import CONTENT_FREE
from core_tasks.fitting import MOST_NAMED
from core_wires.errors import OPENAI, Dialect
from core_wires.values import Value

MAX_ROWS = 100_000
"""Prompts that a model reads, or texts that it generates."""
MAX_PROBABILITIES = 2_000_000
"""Probabilities of labels, in all rows."""
MAX_NUMBERS = 64_000_000
"""Float32 values of logits and hidden states, in all rows."""
MAX_CHARACTERS = 64_000_000
"""Characters of all prompts together."""
MAX_TOKENS = 8_000_000
"""Tokens of all prompts together, if they consist of ids."""

MAX_TEXT = 2_000_000
"""Characters of a text that is tokenised only for the request: no model has refused it before."""
MAX_VARIABLES = 8_000_000
"""Characters of template variables as JSON, in all texts that are generated."""
MAX_WORDS = 1_000_000
"""Characters of labels, and of stop strings in all texts that are generated concurrently."""

TEXT_BYTES, ID_BYTES = 240, 40
"""Bytes that a character takes while it is tokenised, and an id afterwards."""
STOP_BYTES = 300
"""Bytes that a character of a stop string takes in the tree that finds it."""
ROW_BYTES, PROBABILITY_BYTES, NUMBER_BYTES = 1024, 128, 4
"""Bytes of results in memory: a row, a probability with its logarithm, a number."""
_CONCURRENT = 256
_FIT_TEXTS = len(CONTENT_FREE) + MOST_NAMED  # texts that a content-free prior is fitted on


def refuse_beyond(
    most: int, unit: str, factors: Mapping[str, int], dialect: Dialect = OPENAI
) -> int:
    """Return the product of the factors. Raises `WireError` if it exceeds ``most``."""
    total = math.prod(factors.values())
    if total > most:
        product = " x ".join(f"{_shown(number)} {name}" for name, number in factors.items())
        equals = "" if len(factors) == 1 and unit in factors else f" = {_shown(total)} {unit}"
        limit = f"a request may have at most {most:,} {unit}"
        message = f"{product}{equals}: {limit}. Split the request."
        raise dialect.invalid((), message, "too_long")
    return total


def _shown(number: int) -> str:
    return f"{number:,}" if number < 10**18 else "over 10**18"


def token_ids(value: Value, vocab_size: int) -> list[int]:
    """Return an array of token ids. Raises `WireError` for ids outside the vocabulary."""
    ids = [item.integer() for item in value.items()]
    for item, id in zip(value.items(), ids, strict=True):
        if not 0 <= id < vocab_size:
            raise item.wrong(f"Token id out of range: expected 0 to {vocab_size - 1}.")
    return ids


def bytes_of_text(text: str) -> int:
    """Return the bytes that tokenising a text takes. Raises `WireError` if it is too long."""
    return TEXT_BYTES * refuse_beyond(MAX_TEXT, "characters", {"characters": len(text)})


def bytes_of_stops(stops: Sequence[str], texts: int) -> int:
    """Return the bytes that finding stop strings takes. Raises `WireError` for too many."""
    factors = {
        "characters of stop strings": sum(map(len, stops)),
        "texts": min(texts, _CONCURRENT),
    }
    return STOP_BYTES * refuse_beyond(MAX_WORDS, "characters of stop strings", factors)


def check_variables(variables: object, texts: int = 1) -> None:
    """Refuse template variables that would take seconds to render. Raises `WireError`."""
    if variables:
        size = len(msgspec.json.encode(variables))
        factors = {"characters of template variables": size, "texts": texts}
        refuse_beyond(MAX_VARIABLES, "characters of template variables", factors)


def check_labels(labels: Sequence[str], label_sentence: str = LABEL_SENTENCE) -> None:
    """Refuse labels that would block tokenising for seconds. Raises `WireError`."""
    unit = "characters of labels"
    refuse_beyond(MAX_WORDS, unit, {unit: sum(map(len, labels))})
    if label_sentence != LABEL_SENTENCE:
        unit = "characters of label sentences"
        own = len(label_sentence) * len(labels)
        filled = label_sentence.count(LABEL_PLACE) * sum(map(len, labels))
        refuse_beyond(MAX_WORDS, unit, {unit: own + filled})


def bytes_of_rows(rows: int, probabilities: int = 0, numbers: int = 0) -> int:
    """Return the bytes that results take. Raises `WireError` beyond the limits of a request."""
    for most, unit, count in (
        (MAX_ROWS, "rows", rows),
        (MAX_PROBABILITIES, "probabilities of labels", probabilities),
        (MAX_NUMBERS, "numbers", numbers),
    ):
        refuse_beyond(most, unit, {unit: count})
    return rows * ROW_BYTES + probabilities * PROBABILITY_BYTES + numbers * NUMBER_BYTES


def bytes_of_task(task: Question, texts: Sequence[str], level: str = "raw") -> int:
    """Return the bytes that the answers to these texts take, with prompts. Raises `WireError`."""
    check_labels(task.labels, task.label_sentence)
    fitted = _FIT_TEXTS if level != "raw" else 0
    rows, labels = len(texts) + fitted, len(task.labels)
    name = f"texts ({fitted} of them for level {level})" if fitted else "texts"
    factors = {name: rows} | ({"labels": labels} if task.mode == "many" else {})
    prompts = refuse_beyond(MAX_ROWS, "rows", factors)
    factors = {name: rows, "labels": labels}
    probabilities = refuse_beyond(MAX_PROBABILITIES, "probabilities", factors)
    characters = rows * fixed_characters(task)
    characters += sum(map(len, texts)) * repeats(task)
    refuse_beyond(MAX_CHARACTERS, "characters of prompts", {"characters of prompts": characters})
    return characters + prompts * ROW_BYTES + probabilities * PROBABILITY_BYTES


def rows_at_once(task: Question, most: int) -> int:
    """Return the number of texts that may be classified together, at least one."""
    by_labels = min(MAX_ROWS // len(task.questions), MAX_PROBABILITIES // len(task.labels))
    return max(1, min(most, by_labels, MAX_CHARACTERS // max(1, fixed_characters(task))))


def fixed_characters(task: Question) -> int:
    """Return the most characters that a text's prompts have in addition to the text."""
    own = len(task.template) * len(task.questions)
    return own + task.template.count("{label}") * sum(map(len, task.labels))


def repeats(task: Question) -> int:
    """Return how many times a text occurs in its prompts."""
    return task.template.count("{text}") * len(task.questions)
