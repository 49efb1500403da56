"""A calibration as a value: its adjustments of log-probabilities, and the task that it is for.

Its file is JSON, which can be read and put under version control.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from core.errors import CalibrationError
from core.options import LABEL_SENTENCE
from core.system import outputs
from core.system.fields import MOST, Fields, items_in, number_in
from core.system.limited_files import FileKind, Refused, check_format, json_value, shown
from core_tasks.calibration.adjustment import Adjustment

Level = Literal["raw", "L0", "L1", "L2"]
"""Groups of methods: ``raw``, uncalibrated; ``L0``, prior subtracted; ``L1``, fitted to gold
labels; ``L2``, a classifier head on hidden states. A decision names its method instead."""

FORMAT = 1
READING = FileKind("a calibration", CalibrationError, "Restore its file, or fit it again.")
_KIND = "core.calibration"
_FILE = outputs.Kind("a calibration", re.compile(rb'\{\s*"kind": "%b"' % _KIND.encode()))
_KEYS = (
    *("kind", "format", "level", "method", "rows", "model", "template", "label_prefix"),
    *("label_sentence", "labels", "questions", "words", "adjustments"),
)
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Key:
    """Key of a calibration: the combination of model, template and labels that it is valid for.

    ``model`` is its `core.models.fingerprint.fingerprint_of`, ``words`` are the words of each
    answer, and ``questions`` the labels in mode "many".
    """

    model: str
    template: str
    words: Mapping[str, tuple[str, ...]] = field(hash=False)
    questions: tuple[str, ...] = ()
    label_prefix: str = " "
    label_sentence: str = LABEL_SENTENCE

    @property
    def asked(self) -> tuple[str, ...]:
        """The names of the questions; one without a name if all labels answer one question."""
        return self.questions or ("",)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted calibration, which can be saved and loaded; `apply` depends only on its row.

    ``method`` is "batch", "content-free", "mean", "pmi", "temperature", "isotonic", or one of the
    first four followed by one of the last two, such as "batch+temperature". ``labels`` are in the
    order of the adjustments' numbers; each question has an adjustment. ``rows`` is the number of
    rows that it was fitted on.
    """

    level: Level
    method: str
    key: Key
    labels: tuple[str, ...]
    adjustments: Mapping[str, Adjustment] = field(hash=False)
    rows: int = 0

    def __post_init__(self) -> None:
        if self.level not in ("L0", "L1"):
            raise CalibrationError(
                f"The calibration's level is {shown(self.level)}: expected 'L0' or 'L1'."
            )
        if not 0 <= self.rows <= MOST:
            raise CalibrationError(
                f"The calibration's rows are {shown(self.rows)}: expected a number from 0."
            )
        if set(self.labels) != set(self.key.words) or len(self.labels) != len(self.key.words):
            raise CalibrationError("The calibration's labels and words do not match.")
        if set(self.adjustments) != set(self.key.asked):
            raise CalibrationError("The calibration does not have one adjustment per question.")
        sizes = {len(adjustment.prior) for adjustment in self.adjustments.values()}
        if not sizes <= {0, len(self.labels)}:
            raise CalibrationError("The calibration's priors do not have one value per label.")

    def apply(self, logprobs: Mapping[str, float], question: str = "") -> dict[str, float]:
        """Return the calibrated log-probabilities of the labels, in their order; they sum to 1.

        Raises `CalibrationError` for other labels, and for NaN.
        """
        if logprobs.keys() != set(self.labels) or question not in self.adjustments:
            raise CalibrationError(
                f"The calibration is for the labels {_few(self.labels)}, not {_few(logprobs)}. "
                "Fit one for these."
            )
        adjusted = self.adjustments[question]([logprobs[label] for label in self.labels])
        by_label = dict(zip(self.labels, adjusted, strict=True))
        return {label: by_label[label] for label in logprobs}

    def check(self, key: Key) -> None:
        """Raise `CalibrationError` for a different key, naming the first difference.

        The order of labels, words and questions does not matter.
        """
        mine = self.key
        for name, fitted, here in (
            ("model", mine.model, key.model),
            ("template", mine.template, key.template),
            ("labels", sorted(mine.words), sorted(key.words)),
            ("words", _sorted(mine.words), _sorted(key.words)),
            ("questions", sorted(mine.questions), sorted(key.questions)),
            ("label_prefix", mine.label_prefix, key.label_prefix),
            ("label_sentence", mine.label_sentence, key.label_sentence),
        ):
            if fitted != here:
                raise CalibrationError(
                    f"The calibration was fitted with {name} {_short(fitted)}, not "
                    f"{_short(here)}. Use the original {name}, or calibrate again."
                )

    # ----------------------------------------------------------------------- files

    def to_dict(self) -> dict[str, Any]:
        """Return the calibration for JSON and TOML; `from_dict` restores it, bit by bit."""
        return {
            "kind": _KIND,
            "format": FORMAT,
            "level": self.level,
            "method": self.method,
            "rows": self.rows,
            "model": self.key.model,
            "template": self.key.template,
            "label_prefix": self.key.label_prefix,
            **sentence_field(self.key.label_sentence),
            "labels": [*self.labels],
            "questions": [*self.key.questions],
            "words": {label: [*self.key.words[label]] for label in self.labels},
            "adjustments": [
                {
                    "prior": [*adjustment.prior],
                    "temperature": adjustment.temperature,
                    "knots": [[*knot] for knot in adjustment.knots],
                }
                for adjustment in (self.adjustments[question] for question in self.key.asked)
            ],
        }

    def to_json(self) -> str:
        """Return the calibration as a JSON document."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Return the calibration of a `to_dict`.

        Raises `CalibrationError` for invalid data, and for a newer format.
        """
        with READING.errors():
            return cls._read(Fields(data))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the calibration of a `to_json`; raises like `from_dict`."""
        with READING.errors():
            return cls._read(Fields(json_value(text)))

    @classmethod
    def _read(cls, data: Fields) -> Self:
        if data.values.get("kind") != _KIND:
            raise Refused(f"its kind is not {_KIND!r}, which Calibration.to_json() writes")
        check_format(data.values.get("format"), FORMAT)
        data.only(_KEYS)

        words = data.table("words")
        key = Key(
            data.text("model"),
            data.text("template"),
            {label: words.texts(label) for label in map(str, words.values)},
            data.texts("questions"),
            data.text("label_prefix"),
            data.text("label_sentence") if data.given("label_sentence") else LABEL_SENTENCE,
        )

        # One adjustment for each question, in the order of the key.
        adjustments = [*map(_adjustment, data.tables("adjustments"))]
        if len(adjustments) != len(key.asked):
            raise Refused(f"it has {len(adjustments)} adjustments for {len(key.asked)} questions")
        named = dict(zip(key.asked, adjustments, strict=True))
        level: Any = data.text("level")
        rows = data.integer("rows")
        return cls(level, data.text("method"), key, data.texts("labels"), named, rows)


def save_calibration(calibration: Calibration, path: str | os.PathLike[str]) -> None:
    """Write the calibration's file; an earlier calibration is replaced atomically.

    Raises `OutputError` for any other existing file, and OSError.
    """
    outputs.write(path, READING.writable(calibration.to_json()), _FILE)


def load_calibration(path: str | os.PathLike[str]) -> Calibration:
    """Return the calibration of a file.

    Raises `CalibrationError`, and OSError if it cannot be read.
    """
    data = READING.read(path)
    with READING.named(path):
        return Calibration.from_json(data)


def sentence_field(label_sentence: str) -> dict[str, str]:
    """Return the field of a file for this label sentence: none for the default."""
    return {} if label_sentence == LABEL_SENTENCE else {"label_sentence": label_sentence}


def _adjustment(data: Fields) -> Adjustment:
    data.only(("prior", "temperature", "knots"))
    knots = tuple(_knot(*item) for item in data.items("knots"))
    return Adjustment(data.numbers("prior"), data.number("temperature"), knots)


def _knot(value: object, place: str) -> tuple[float, float]:
    pair = [number_in(*item) for item in items_in(value, place)]
    if len(pair) != 2:
        raise Refused(f"{place} is {shown(value)}, not a pair of numbers")
    return pair[0], pair[1]


def _sorted(words: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {label: sorted(words[label]) for label in sorted(words)}


def _few(labels: Mapping[str, float] | Sequence[str]) -> str:
    return _short(", ".join(map(repr, labels)) or "no labels", quoted=False)


def _short(value: object, *, quoted: bool = True) -> str:
    text = repr(value) if quoted else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
