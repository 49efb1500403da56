"""What makes labels doubtful, and the command that mends it: for a run's last words on stderr.

Four things are looked at. A label takes nearly all rows, or never comes. The labels' mass is tiny
beside what the model would rather say. And another label is chosen for many rows once what the
prompt prefers by itself is taken off: then the prompt decides, and not the text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.calibration import batch_prior
from core.cli import output
from core.cli.jobs.job import quoted
from core.cli.rows.checks import template_of
from core.cli.rows.template import TEXT
from core.cli.writing.records import shown
from core.errors import CalibrationError

if TYPE_CHECKING:
    from core.cli.reading.row import Row
    from core.cli.writing.answers import Answer

_FEW, _MOST = 20, 0.9  # labelled rows that tell something; the share that one label may take
_TINY, _BESIDE = 1e-6, 1e-3  # of all probability; of that of the model's own next token
_TRIED = 8  # rows that are asked again, with their labels joined the other way
_SAMPLE, _MOVED = 512, 0.2  # rows that are kept; the share that a prior may move
_SHOWN, _LONGEST = 20, 40
_ALIKE = {
    "backend": "--backend",
    "adapter_path": "--adapter-path",
    "form": "--format",
    "field": "--field",
    "gold": "--gold",
}
"""Flags that say the same to ``calibrate``, by the names of their values."""
_UNSAID = {"template": None, "template_file": None, "prompts": (), "form": "auto"}


class Doubts:
    """Looks at each labelled answer; `lines` says what is wrong with all of them together.

    ``rows`` are the first of those whose labels the model hardly expects. ``joining`` is to be set
    to how these would be likelier, where that is for how they are joined to their prompts.
    """

    def __init__(self) -> None:
        self.tiny = self.beside = 0
        self.rows: list[Row] = []
        self.joining: str | None = None
        self.instead: Counter[str] = Counter()
        self._logprobs: list[Mapping[str, float]] = []

    def add(self, answer: Answer, row: Row | None = None) -> None:
        """Look at an answer that has a label. One that was read back from a table tells less."""
        mass, token, logprobs = (answer.get(name) for name in ("label_mass", "token", "logprobs"))
        if isinstance(mass, float):
            mass = shown(mass)
            least = _TINY
            if isinstance(token, dict):
                least = max(_TINY, _BESIDE * _probability(token))
            self.tiny += mass < _TINY
            if isinstance(token, dict) and mass < least:
                self.beside += 1
                self.instead[str(token.get("text"))] += 1
            if row is not None and mass < least and len(self.rows) < _TRIED:
                self.rows.append(row)
        raw = answer.get("level", "raw") == "raw"
        if raw and isinstance(logprobs, dict) and len(self._logprobs) < _SAMPLE:
            self._logprobs.append(logprobs)

    def moved(self) -> tuple[int, int]:
        """How many rows get another label without the prompt's own preference, and of how many.

        The preference is a batch prior's, at its usual strength (`core.calibration.batch_prior`).
        """
        if len(self._logprobs) < _FEW:
            return 0, 0
        labels = [*self._logprobs[0]]
        rows = [[row.get(label, float("nan")) for label in labels] for row in self._logprobs]
        try:
            prior = batch_prior(rows)
            return sum(_best(row) != _best(prior(row)) for row in rows), len(rows)
        except CalibrationError:  # rows of other labels, or a label that never can come
            return 0, 0

    def lines(self, counts: Mapping[str, int], command: str | None) -> list[str]:
        """What is doubtful about so many rows of each label; ``command`` mends it, if any does."""
        uneven = [*self._uneven(counts), *self._decided_by_the_prompt()]
        found = [*uneven, *self._beside_the_point()]
        if uneven and self._logprobs and command is not None:
            found.append(f"What the prompt prefers by itself is taken off by:\n{command}")
        return found

    def _uneven(self, counts: Mapping[str, int]) -> list[str]:
        labelled = sum(counts.values())
        if labelled < _FEW or len(counts) < 2:
            return []
        label, count = max(counts.items(), key=lambda pair: pair[1])
        never = [repr(label) for label, count in counts.items() if not count]
        found = []
        if count > _MOST * labelled:
            found.append(f"Note: {label!r} takes {percent(count, labelled)} of the rows.")
        if never:
            found.append(f"Note: never chosen: {', '.join(never[:_SHOWN])}.")
        return found

    def _decided_by_the_prompt(self) -> list[str]:
        moved, rows = self.moved()
        if moved <= _MOVED * rows:
            return []
        return [
            f"Note: {percent(moved, rows)} of {output.counted(rows, 'row')} get another label "
            "once what they have in common is taken off: the prompt decides there, not the text."
        ]

    def _beside_the_point(self) -> list[str]:
        count = max(self.tiny, self.beside)
        if not count:
            return []
        rows = output.counted(count, "row")
        said = ", ".join(f"{_cut(text)} ({count})" for text, count in self.instead.most_common(3))
        instead = f", and would rather say {said}" if said else ""
        advice = self.joining or "Let the prompt lead to them; --show-prompt shows it."
        return [f"Note: in {rows} the model hardly expects any of the labels{instead}. {advice}"]


def mending(flags: Mapping[str, Any]) -> str | None:
    """The ``calibrate`` command for the question that these flags ask; None where it asks none.

    That is so of a head, of chats, and of templates with other fields than the text.
    """
    asks = any(flags.get(name) for name in ("task", "labels", "labels_file"))
    if not asks or flags.get("chat") or flags.get("system") is not None or flags.get("head"):
        return None
    template = None if flags.get("task") else template_of({**_UNSAID, **flags})
    if template is not None and set(template.fields) != {TEXT}:
        return None
    arguments = ["infer-cli", "calibrate", "-m", str(flags["model"])]
    for name, flag in _ALIKE.items():
        if flags.get(name) not in (None, "", "auto"):
            arguments += [flag, str(flags[name])]
    file = flags.get("file")
    arguments += ["-i", "FILE" if file in (None, "-") else str(file)]
    return " ".join(map(quoted, [*arguments, *_question(flags), "-o", "task.toml"]))


def _question(flags: Mapping[str, Any]) -> list[str]:
    if flags.get("task"):
        return ["--task", str(flags["task"])]
    # A prompt that stands in the input whole is a template of nothing but itself.
    given = {"template": "{text}"} if not flags.get("template_file") else {}
    given |= {
        name: str(flags[name])
        for name in ("template", "template_file", "labels", "labels_file", "label_prefix")
        if flags.get(name) is not None
    }
    return [
        part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", value)
    ]


def _probability(token: Mapping[str, object]) -> float:
    logprob = token.get("logprob")
    return math.exp(shown(logprob)) if isinstance(logprob, float) else 0.0


def _best(row: Sequence[float]) -> int:
    return row.index(max(row))


def _cut(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def percent(count: int, total: int) -> str:
    """A share for people."""
    return f"{100 * count / total:.0f} %" if total else "-"
