"""Explains the label of one row: its probability without each part of the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from core_cli import output
from core_cli.flags import RowFlags, given, parse_labels
from core_cli.rows import checks, input
from core_cli.tasks import question as questions

if TYPE_CHECKING:
    from core_cli.values import Question
    from core_tasks.explaining import Explanation, Part, Unit

_COLUMNS = ("PART", "WITHOUT IT", "CHANGE", "LABEL")
_SHOWN = 200  # characters of a part in a table that is not on a terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainFlags(RowFlags):
    """Flags of ``explain``."""

    row: str
    by: Unit = "sentences"
    label: str | None = None


def run(flags: ExplainFlags) -> None:
    """Print the explanation of one row. Raises `click.UsageError` for wrong flags."""
    from core.options import GenerateConfig
    from core_cli.loading import explain as report
    from core_cli.loading import load
    from core_cli.rows.shortening import shortened
    from core_tasks.explaining import explain

    question, named = question_of(flags)
    text = _text(flags)
    loaded = load(named.need_model(), flags.load_config(), question.needed)
    with loaded.model:
        if flags.verbose:
            report(loaded)
        decide = question.decide(loaded)
        words = question.labelled.labels if question.labelled else ()
        [text] = shortened(loaded, [text], flags.truncate, [question.around], words)
        explanation = explain(
            lambda texts: decide(texts, GenerateConfig()), text, by=flags.by, label=flags.label
        )
    if flags.as_json:
        output.write_json(explanation.to_dict())
    else:
        _show(explanation)


def question_of(flags: RowFlags) -> tuple[Question, RowFlags]:
    """Return the question, and the flags with the model that its task names."""
    from core_tasks import Task

    if flags.head:
        return questions.question_of(flags), flags
    if flags.task:
        task = questions.task_of(flags)
        return questions.of_task(task), replace(flags, model=flags.model or task.model or None)
    labels = parse_labels(flags.labels, flags.labels_file)
    if not labels:
        raise click.UsageError("No labels. Pass --labels, --task or --head.")
    template = checks.template_of(flags.template, flags.template_file, records=False)
    joining: dict[str, Any] = given(
        label_prefix=flags.label_prefix, label_sentence=flags.label_sentence
    )
    source = "{text}" if template is None else template.source
    return questions.of_task(Task(source, labels, **joining)), flags


def _text(flags: ExplainFlags) -> str:
    """Return the text: the argument, or that of the row with this number in the file."""
    if flags.file is None:
        return flags.row
    if not flags.row.isdecimal() or int(flags.row) < 1:
        raise click.UsageError(f"ROW is {flags.row!r}. With -i FILE it is a row's number, from 1.")
    number = int(flags.row)
    with input.opened(flags, None) as source:
        row = next(islice(source.rows, number - 1, None), None)
    if row is None:
        raise click.UsageError(f"{flags.file} has fewer than {number} rows.")
    if row.error is not None:
        raise row.error
    return row.text


def _show(explanation: Explanation) -> None:
    parts = sorted(explanation.parts, key=lambda part: -abs(part.effect or 0.0))
    rows = [[*_cells(part, explanation.label)] for part in parts]
    if output.is_terminal():
        output.draw(_COLUMNS, rows, cut=True)
    else:
        output.write_lines([_COLUMNS, *rows])
    level = explanation.decision.level
    output.say(f"{explanation.label}: {explanation.probability:.4f} with all parts (level {level})")
    if failed := [part for part in parts if part.error is not None]:
        output.warn(f"{output.counted(len(failed), 'part')} failed: {failed[0].error}")


def _cells(part: Part, label: str) -> Iterator[str]:
    yield " ".join(part.text.split())[:_SHOWN]
    if part.probability is None or part.change is None:
        yield from ("failed", "", "")
    else:
        yield f"{part.probability:.4f}"
        yield f"{part.change:+.4f}"
        yield "" if part.label == label else part.label or ""
