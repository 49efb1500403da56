"""The labelling session: which row comes next, what is shown, and what is saved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import click

from core_cli import output, suggestions
from core_cli.flags import FitFlags, RowFlags, parse_labels
from core_cli.reading.row import Row
from core_cli.rows import input
from core_cli.tasks.explaining import question_of
from core_cli.tasks.gold_file import GoldFile, GoldRow
from core_cli.tasks.label_keys import Command, Keys, unbuffered
from core_tasks.active import Picker
from core_tasks.agreement.baseline import baseline_of
from core_tasks.folds import text_key

_BLOCK = 32  # rows per call of the model, after which the progress is shown
_SHOWN = 2000  # characters of a text
_EVERY_LABEL, _THEN_EVERY = 50, 25  # n-grams take longer with more rows


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFlags(RowFlags):
    """Flags of ``label``."""

    output: str


@dataclass(frozen=True, slots=True)
class Guesses:
    """The model's label of each row, and its margin; NaN for rows that failed."""

    labels: list[str | None]
    margins: list[float]


def run(flags: LabelFlags) -> None:
    """Ask for labels until the user ends, or no row is left."""
    if flags.file in (None, "-"):
        raise click.UsageError("No rows. Pass them with -i FILE; the keyboard answers.")
    gold = GoldFile(flags.output)
    with input.opened(flags, None) as source:
        rows = [row for row in source.rows if row.error is None]
    if not rows:
        raise click.UsageError(f"{flags.file} has no usable rows.")
    labels, guesses = _labels(flags), None
    if flags.model or flags.task:
        labels, guesses = _guesses(flags, rows)
    if unknown := {row.label for row in gold.rows} - {*labels}:
        raise click.UsageError(
            f"{flags.output} has the label {min(unknown)!r}, which --labels lacks. Add it, or "
            "choose another file."
        )
    with unbuffered():
        Session(rows, labels, gold, guesses).run()
    if gold.rows:
        _say_next(flags, len(gold.rows))


def _labels(flags: LabelFlags) -> tuple[str, ...]:
    labels = parse_labels(flags.labels, flags.labels_file)
    if len(labels) < 2 and not flags.task:
        raise click.UsageError("Pass at least two labels with --labels, or --task.")
    return labels


def _guesses(flags: LabelFlags, rows: Sequence[Row]) -> tuple[tuple[str, ...], Guesses]:
    """Return the labels of the question, and what the model says about each row."""
    from core.options import GenerateConfig
    from core_cli.loading import explain, load

    question, named = question_of(flags)
    loaded = load(named.need_model(), flags.load_config(), question.needed)
    guesses = Guesses([], [])
    text = f"{{}} of {output.counted(len(rows), 'row')} classified"
    progress = output.Progress(lambda: text.format(len(guesses.labels)))
    with loaded.model, progress:
        if flags.verbose:
            explain(loaded)
        decide = question.decide(loaded)
        for start in range(0, len(rows), _BLOCK):
            block = [row.text for row in rows[start : start + _BLOCK]]
            for decision in decide(block, GenerateConfig()):
                margin = math.nan if decision.margin is None else decision.margin
                guesses.margins.append(margin)
                guesses.labels.append(decision.label)
            progress.show()
    return question.labels, guesses


class Session:
    """The rows, their labels so far, and the dialogue about the next one."""

    def __init__(
        self,
        rows: Sequence[Row],
        labels: Sequence[str],
        gold: GoldFile,
        guesses: Guesses | None = None,
    ) -> None:
        self._rows, self._labels, self._gold, self._guesses = rows, labels, gold, guesses
        self._picker = Picker([row.text for row in rows], guesses.margins if guesses else None)
        self._row_of = {text_key(row.text): place for place, row in enumerate(rows)}
        self._skipped: list[int] = []
        self._keys, self._ngrams = Keys(labels), None if not gold.rows else self._held_out()

    def run(self) -> None:
        """Ask until the user ends, or no row is left."""
        if self._gold.rows:
            output.say(f"Continuing with {output.counted(len(self._gold.rows), 'labelled row')}.")
        while (place := self._picker.next(self._labelled(), self._skipped)) is not None:
            self._show(self._rows[place])
            answer = self._keys.answer()
            if answer is Command.QUIT:
                return
            if answer is Command.SKIP:
                self._skipped.append(place)
            elif isinstance(answer, Command):
                self._undo()
            else:
                row = self._rows[place]
                self._gold.add(GoldRow(row.line, row.text, answer))
                self._tell(answer, place)
        output.say("No row is left.")

    def _labelled(self) -> list[int]:
        """Return the places of the labelled rows that the input has."""
        places = (self._row_of.get(text_key(row.text)) for row in self._gold.rows)
        return [place for place in places if place is not None]

    def _show(self, row: Row) -> None:
        text = row.text if len(row.text) <= _SHOWN else row.text[:_SHOWN] + " ..."
        names = "  ".join(f"[{number}] {name}" for number, name in enumerate(self._labels, 1))
        title = f"--- {row.place}, {len(self._gold.rows)} labelled "
        output.say(f"\n{title:-<40}\n{text}\n\n{names}  (u undo, s skip, q quit)")
        output.say("> ", end="")

    def _undo(self) -> None:
        row = self._gold.undo()
        output.say("Nothing to undo." if row is None else f"Took back {row.label!r}.")

    def _tell(self, label: str, place: int) -> None:
        """Print the label, and the accuracies on the rows labelled so far."""
        guess = self._guesses.labels[place] if self._guesses else None
        parts = [
            f"{label!r} ({guess!r} by the model)" if guess and guess != label else f"{label!r}"
        ]
        if self._guesses is not None and (accuracy := self._model_accuracy()) is not None:
            parts.append(f"the model is right on {100 * accuracy:.1f} %")
        count = len(self._gold.rows)
        if count <= _EVERY_LABEL or count % _THEN_EVERY == 0:
            before, self._ngrams = self._ngrams, self._held_out()
            if self._ngrams is not None:
                change = "" if before is None else f" ({100 * (self._ngrams - before):+.1f})"
                parts.append(f"n-grams on {100 * self._ngrams:.1f} %{change}, cross-validated")
        output.say("; ".join(parts))

    def _model_accuracy(self) -> float | None:
        """Return the model's accuracy on the labelled rows, of which it has seen no label."""
        assert self._guesses is not None
        gold = {text_key(row.text): row.label for row in self._gold.rows}
        pairs = [
            (self._guesses.labels[place], gold[text_key(self._rows[place].text)])
            for place in self._labelled()
        ]
        return sum(guess == label for guess, label in pairs) / len(pairs) if pairs else None

    def _held_out(self) -> float | None:
        rows = self._gold.rows
        baseline = baseline_of([row.text for row in rows], [row.label for row in rows])
        return None if baseline is None else baseline.ngrams


def _say_next(flags: LabelFlags, count: int) -> None:
    """Print how to use the labelled rows."""
    written = f"{flags.output}: {output.counted(count, 'labelled row')}."
    if flags.model is None:
        output.say(f"{written} Other commands read it with -i {flags.output} --gold label.")
        return
    shared = {item.name: getattr(flags, item.name) for item in fields(FitFlags)}
    reading = {"form": "auto", "encoding": None, "field": None, "limit": None}
    rows = FitFlags(**{**shared, **reading, "file": flags.output, "gold": "label"})
    output.say(f"{written} Train a head on it with:\n{suggestions.learn_command(rows)}")
