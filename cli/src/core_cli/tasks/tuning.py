"""Compares candidate prompts on rows: a table of their quality, and a task file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from core.system import outputs
from core_cli import output, suggestions, yardsticks
from core_cli.progress import working
from core_cli.tasks import gold_rows
from core_cli.tasks.candidates import TuneFlags, candidates_of
from core_cli.tasks.comparing import best_of
from core_cli.tasks.trying import try_model
from core_tasks.files import FILE

if TYPE_CHECKING:
    from core_tasks.tuning import Trial, Tuning

_SHOWN = 20  # trials on a terminal
_HEAD = (
    *("TEMPLATE", "LABEL SENTENCE", "WORDS", "METHOD", "ACCURACY", "INTERVAL"),
    *("CAL. ERROR", "BRIER", "NLL", "COVERAGE", "MASS", "MARGIN", "STABLE", "ROWS/S"),
)


def run(flags: TuneFlags) -> None:
    """Try all candidates, show the table, write the best one.

    Several models are compared, and the best one's task is written. Raises `click.UsageError` for
    flags that cannot be combined, and what `core_tasks.tune` raises.
    """
    candidates = candidates_of(flags)
    named = (task.model for task in candidates.tasks[:1] if task.model)
    models = tuple(dict.fromkeys(flags.models or named))
    flags = replace(flags, model=models[0] if models else None)
    flags.need_model()
    if len(models) > 1 and flags.gold is None:
        raise click.UsageError("Several models can only be compared on gold labels: pass --gold.")
    if flags.output:
        outputs.check(flags.output, FILE, overwrite=flags.overwrite)
    levels = _levels(flags)
    rows = gold_rows.read(flags, candidates.labels)

    if len(models) > 1:
        flags, tried = best_of(models, flags, candidates, rows, levels)
    else:
        with working(flags, models[0]) as work:
            tried = try_model(flags, candidates, rows, levels, work)
        _show(tried.tuning, tried.head, flags.as_json, flags.verbose)
    tuning = tried.tuning
    _tell(tuning)
    baseline = None if rows.gold is None else yardsticks.say(rows.texts, rows.gold)
    if tuning.threshold is not None:
        gold_rows.warn_of_repeats(rows.texts)
        gold_rows.threshold_value(tuning.threshold, flags.error_rate or 0.0)
    if tried.head is not None:
        _tell_of_head(tried.head)
    if tuning.expected is not None:
        head_low = None if tried.head is None else tried.head["accuracy_interval"][0]
        low = tuning.expected.interval[0]
        advised = yardsticks.say_next(baseline, low, flags, head_low)
        if tried.head is not None and not advised:
            output.say(f"Train it with:\n{suggestions.learn_command(flags)}")
    if flags.output:
        replace(tuning.best, model=flags.need_model()).save(flags.output)
        output.say(
            f"{flags.output}: {tuning.best.level}. Use it with:\n"
            f"{suggestions.classify_command(flags, task=flags.output)}"
        )


def _levels(flags: TuneFlags) -> list[Any] | None:
    """Return the calibration levels to try on prompts.

    Raises `click.UsageError` for L2 alone, or without gold labels.
    """
    prompts = [level for level in flags.levels if level != "L2"]
    if "L2" in flags.levels:
        if not prompts:
            raise click.UsageError(
                "--level L2 requires another level next to it. To train a classifier head alone, "
                "use infer-cli learn."
            )
        if flags.gold is None:
            raise click.UsageError("--level L2 requires --gold FIELD.")
    return prompts or None


# ----------------------------------------------------------------- messages


def _show(
    tuning: Tuning, head: Mapping[str, Any] | None, as_json: bool, verbose: bool = False
) -> None:
    if as_json:
        output.write_bytes(output.json_lines([{**tuning.to_dict(), "head": head}]))
        return
    if output.is_terminal() and not verbose:
        _draw(tuning)
        return
    rows = [_cells(trial) for trial in tuning.trials]
    columns = [place for place in range(len(_HEAD)) if any(row[place] for row in rows)]
    lines = [[row[place] for place in columns] for row in rows]
    names = [_HEAD[place] for place in columns]
    if output.is_terminal():
        output.draw(names, lines[:_SHOWN], cut=True)
        _count_more(lines)
    else:
        output.write_lines([names, *lines])


def _draw(tuning: Tuning) -> None:
    """Draw the table for 80 columns, after the candidates, which it names by number."""
    trials = [dict(zip(_HEAD, _cells(trial), strict=True)) for trial in tuning.trials]
    names = [_candidate(trial, cells) for trial, cells in zip(tuning.trials, trials, strict=True)]
    places = {name: place for place, name in enumerate(dict.fromkeys(names), 1)}
    for name, place in places.items():
        output.write_text(f"{place:>2}  {name}\n")
    head = ["#", "METHOD", "STABLE", "MASS", "MARGIN"]
    if tuning.expected is not None:
        head = ["#", "METHOD", "ACCURACY", "INTERVAL", "CAL. ERROR"]
    lines = [
        [str(places[name]), *(cells[column] for column in head[1:])]
        for name, cells in zip(names, trials, strict=True)
    ]
    output.draw(head, lines[:_SHOWN])
    _count_more(lines)


def _candidate(trial: Trial, cells: Mapping[str, str]) -> str:
    """Return a candidate on one line: template, label sentence and words."""
    name = trial.candidate.replace("\n", "\\n")
    return f"{name}  [{cells['WORDS']}]" if cells["WORDS"] else name


def _count_more(lines: Sequence[object]) -> None:
    if len(lines) > _SHOWN:
        output.say(f"and {len(lines) - _SHOWN} more; --json has all")


def _cells(trial: Trial) -> list[str]:
    own = [f"{label}={'|'.join(words)}" for label, words in trial.task.words.items()]
    plain = all(words == (label,) for label, words in trial.task.words.items())
    low_high, sentence = trial.interval, trial.label_sentence
    template = trial.task.template.replace("\n", "\\n")
    return [
        "" if sentence is not None and template == "{text}" else template,
        sentence or "",
        "" if plain else " ".join(own),
        trial.method,
        _figure(trial.accuracy),
        f"{low_high[0]:.3f}-{low_high[1]:.3f}" if low_high else "",
        _figure(trial.calibration_error),
        _figure(trial.brier),
        _figure(trial.nll),
        _figure(trial.coverage),
        "" if trial.label_mass is None else f"{trial.label_mass:.2g}",
        _figure(trial.margin),
        _figure(trial.stability),
        f"{trial.rows_per_second:.1f}",
    ]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _tell(tuning: Tuning) -> None:
    best = tuning.trials[0]
    if tuning.left_out:
        output.warn(f"{output.counted(tuning.left_out, 'row')} skipped: empty, or too long")
    if tuning.expected is None:
        signals = "stability, label mass and margin"
        if best.label_mass is None:
            signals = "stability and margin"
        output.say(
            f"The best of {len(tuning.trials)} by {signals}, which are weak signals. A few dozen "
            "rows with gold labels (--gold) give a better choice."
        )
        return

    assert best.accuracy is not None
    low, high = (100 * end for end in tuning.expected.interval)
    output.say(
        f"The best of {len(tuning.trials)} has an accuracy of {100 * best.accuracy:.1f} % on the "
        f"{output.counted(tuning.rows, 'row')} it was chosen on. On new rows expect "
        f"{100 * tuning.expected.accuracy:.1f} % ({low:.1f} to {high:.1f}), by nested "
        "cross-validation."
    )


def _tell_of_head(head: Mapping[str, Any]) -> None:
    low, high = (100 * end for end in head["accuracy_interval"])
    output.say(
        f"A classifier head (L2) needs no prompt. Its accuracy on held-out rows is "
        f"{100 * head['accuracy']:.1f} % ({low:.1f} to {high:.1f}), its calibration error "
        f"{head['calibration_error']:.3f}."
    )
