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

Level = Literal["raw", "L0", "L1", "L2"]
"""``raw`` as the model has them; ``L0``: a prior is off; ``L1``: fitted on gold labels; ``L2``: of
a head that learned from the model's hidden states, which no calibration is."""

FORMAT = 1
_KIND = "core.calibration"
_FILE = outputs.Kind("a calibration", re.compile(rb'\{\s*"kind": "%b"' % _KIND.encode()))
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
        if not isinstance(data, Mapping) or data.get("kind") != _KIND:
            raise CalibrationError(
                f"This is no calibration: {_KIND!r} is not its kind. Give what "
                "Calibration.to_json() wrote."
            )

        form = data.get("format")
        if isinstance(form, int) and form > FORMAT:
            raise CalibrationError(
                f"This calibration has format {form}, and this version of core reads up to "
                f"{FORMAT}. Read it with a newer one, or fit it anew."
            )

        try:
            return cls._read(data)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            if isinstance(error, CalibrationError):
                raise
            raise CalibrationError(
                f"This calibration is broken: {error!r:.200}. Restore its file, or fit it anew."
            ) from None

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` wrote; raises like `from_dict`."""
        try:
            data = json.loads(text.removeprefix("\ufeff") if isinstance(text, str) else text)
        except (ValueError, RecursionError) as error:  # ValueError: also what is no UTF-8
            raise CalibrationError(
                f"This is no calibration, and no JSON: {error!s:.200}. Restore its file, or fit it "
                "anew."
            ) from None
        return cls.from_dict(data)

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> Self:
        labels, questions = _texts(data["labels"]), _texts(data["questions"])
        words = {_text(label): _texts(each) for label, each in data["words"].items()}
        if data["level"] not in ("L0", "L1"):
            raise ValueError(f"level {data['level']!r:.40} is unknown")
        prefix = _text(data["label_prefix"])
        key = Key(_text(data["model"]), _text(data["template"]), words, questions, prefix)

        # Numbers for each question that is asked, in the order of the key's.
        adjustments = [
            Adjustment(
                tuple(map(_number, each["prior"])),
                _number(each["temperature"]),
                tuple((_number(x), _number(y)) for x, y in each["knots"]),
            )
            for each in data["adjustments"]
        ]
        named = dict(zip(key.asked, adjustments, strict=True))
        return cls(data["level"], _text(data["method"]), key, labels, named, _count(data["rows"]))


def save_calibration(calibration: Calibration, path: str | os.PathLike[str]) -> None:
    """Write the calibration's file, in one step in the place of an earlier calibration's.

    Raises `OutputError` for a file of anything else, and OSError.
    """
    outputs.write(path, calibration.to_json(), _FILE)


def load_calibration(path: str | os.PathLike[str]) -> Calibration:
    """The calibration of a file. Raises `CalibrationError`, and OSError where it cannot be read."""
    with open(path, "rb") as file:
        return Calibration.from_json(file.read())


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} is no list")
    return tuple(map(_text, value))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.40} is no number")
    return float(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{value!r:.40} is no count")
    return value


def _sorted(words: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {label: sorted(words[label]) for label in sorted(words)}


def _few(labels: Mapping[str, float] | Sequence[str]) -> str:
    return _short(", ".join(map(repr, labels)) or "no labels", quoted=False)


def _short(value: object, *, quoted: bool = True) -> str:
    text = repr(value) if quoted else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
