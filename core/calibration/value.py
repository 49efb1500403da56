"""A calibration as a value: what is done to labels' log-probabilities, and for which task alone.

Its file is JSON, plain enough to be read and put under version control.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from core.calibration.adjustment import Adjustment
from core.errors import CalibrationError
from core.system import outputs
from core.system.fields import MOST, Fields, items_in, number_in
from core.system.limited_files import FileKind, Refused, check_format, json_value, shown

Level = Literal["raw", "L0", "L1", "L2"]
"""``raw`` as the model has them; ``L0``: a prior is off; ``L1``: fitted on gold labels; ``L2``: of
a head that learned from the model's hidden states, which no calibration is."""

FORMAT = 1
READING = FileKind("a calibration", CalibrationError, "Restore its file, or fit it again.")
_KIND = "core.calibration"
_FILE = outputs.Kind("a calibration", re.compile(rb'\{\s*"kind": "%b"' % _KIND.encode()))
_KEYS = (
    *("kind", "format", "level", "method", "rows", "model", "template", "label_prefix"),
    *("labels", "questions", "words", "adjustments"),
)
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Key:
    """What a calibration belongs to: any other, and its numbers mean nothing.

    ``model`` is `core.models.fingerprint.fingerprint_of` it, ``words`` are those of each answer,
    and ``questions`` the labels that are asked for one by one, where they are.
    """

    model: str
    template: str
    words: Mapping[str, tuple[str, ...]] = field(hash=False)
    questions: tuple[str, ...] = ()
    label_prefix: str = " "

    @property
    def asked(self) -> tuple[str, ...]:
        """The names of the questions; one without a name where all labels answer one."""
        return self.questions or ("",)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted, saved, loaded, passed; `apply` depends on nothing but its row.

    ``method`` says how it was found: "batch", "content-free", "pmi", "temperature", "isotonic", or
    one of the last two behind one of the first, "batch+temperature". ``labels`` are in the order
    of the adjustments' numbers; there is an adjustment for each question. ``rows`` were fitted on.
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
                f"The calibration's level is {shown(self.level)}. It is 'L0' or 'L1'."
            )
        if not 0 <= self.rows <= MOST:
            raise CalibrationError(
                f"The calibration was fitted on {shown(self.rows)} rows. Give their number."
            )
        if set(self.labels) != set(self.key.words) or len(self.labels) != len(self.key.words):
            raise CalibrationError("The calibration's labels are not those that it has words for.")
        if set(self.adjustments) != set(self.key.asked):
            raise CalibrationError("The calibration has not one adjustment for each question.")
        sizes = {len(each.prior) for each in self.adjustments.values()}
        if not sizes <= {0, len(self.labels)}:
            raise CalibrationError("The calibration's priors are not of as many labels as it has.")

    def apply(self, logprobs: Mapping[str, float], question: str = "") -> dict[str, float]:
        """The calibrated log-probabilities of the labels, in their order; they sum to 1.

        Raises `CalibrationError` for other labels, and for NaN.
        """
        if logprobs.keys() != set(self.labels) or question not in self.adjustments:
            raise CalibrationError(
                f"The calibration is for {_few(self.labels)}, not for {_few(logprobs)}. Fit one "
                "for these."
            )
        adjusted = self.adjustments[question]([logprobs[label] for label in self.labels])
        found = dict(zip(self.labels, adjusted, strict=True))
        return {label: found[label] for label in logprobs}

    def check(self, key: Key) -> None:
        """Raise `CalibrationError`, by name, for what is another than it was fitted for.

        The order of labels, words and questions is of no account.
        """
        mine = self.key
        for name, fitted, here in (
            ("model", mine.model, key.model),
            ("template", mine.template, key.template),
            ("labels", sorted(mine.words), sorted(key.words)),
            ("words", _sorted(mine.words), _sorted(key.words)),
            ("questions", sorted(mine.questions), sorted(key.questions)),
            ("label_prefix", mine.label_prefix, key.label_prefix),
        ):
            if fitted != here:
                raise CalibrationError(
                    f"This calibration was fitted for another {name}: {_short(fitted)}, and here "
                    f"it is {_short(here)}. Use what it was fitted for, or fit one anew."
                )

    # ----------------------------------------------------------------------- files

    def to_dict(self) -> dict[str, Any]:
        """The calibration for JSON and TOML: `from_dict` makes it again, bit by bit."""
        return {
            "kind": _KIND,
            "format": FORMAT,
            "level": self.level,
            "method": self.method,
            "rows": self.rows,
            "model": self.key.model,
            "template": self.key.template,
            "label_prefix": self.key.label_prefix,
            "labels": [*self.labels],
            "questions": [*self.key.questions],
            "words": {label: [*self.key.words[label]] for label in self.labels},
            "adjustments": [
                {
                    "prior": [*each.prior],
                    "temperature": each.temperature,
                    "knots": [[*knot] for knot in each.knots],
                }
                for each in (self.adjustments[question] for question in self.key.asked)
            ],
        }

    def to_json(self) -> str:
        """The calibration as a JSON document."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """What `to_dict` wrote. Raises `CalibrationError` for what is none, and for a newer one."""
        with READING.errors():
            return cls._read(Fields(data))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` wrote; raises like `from_dict`."""
        with READING.errors():
            return cls._read(Fields(json_value(text)))

    @classmethod
    def _read(cls, data: Fields) -> Self:
        if data.values.get("kind") != _KIND:
            raise Refused(
                f"{_KIND!r} is not its kind, as it is of what Calibration.to_json() wrote"
            )
        check_format(data.values.get("format"), FORMAT)
        data.only(_KEYS)

        words = data.table("words")
        key = Key(
            data.text("model"),
            data.text("template"),
            {label: words.texts(label) for label in map(str, words.values)},
            data.texts("questions"),
            data.text("label_prefix"),
        )

        # Numbers for each question that is asked, in the order of the key's.
        adjustments = [*map(_adjustment, data.tables("adjustments"))]
        if len(adjustments) != len(key.asked):
            raise Refused(f"it has {len(adjustments)} adjustments for {len(key.asked)} questions")
        named = dict(zip(key.asked, adjustments, strict=True))
        level: Any = data.text("level")
        rows = data.integer("rows")
        return cls(level, data.text("method"), key, data.texts("labels"), named, rows)


def save_calibration(calibration: Calibration, path: str | os.PathLike[str]) -> None:
    """Write the calibration's file, in one step in the place of an earlier calibration's.

    Raises `OutputError` for a file of anything else, and OSError.
    """
    outputs.write(path, READING.writable(calibration.to_json()), _FILE)


def load_calibration(path: str | os.PathLike[str]) -> Calibration:
    """The calibration of a file. Raises `CalibrationError`, and OSError where it cannot be read."""
    data = READING.read(path)
    with READING.named(path):
        return Calibration.from_json(data)


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
