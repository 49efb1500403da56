"""Compares candidate prompts on rows: a table of their quality, and a task file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from core.system import outputs
from core_cli import output
from core_cli.flags import given, parse_labels
from core_cli.jobs.identity import quoted
from core_cli.rows import checks
from core_cli.tasks import gold_rows
from core_cli.tasks.comparing import best_of
from core_cli.tasks.trying import TuneFlags, try_model
from core_tasks import Task, load_task
from core_tasks.files import FILE
from core_tasks.template import Template

if TYPE_CHECKING:
    from core_tasks.tuning import Trial, Tuning

_SHOWN = 20  # trials on a terminal
_HEAD = (
    *("TEMPLATE", "WORDS", "METHOD", "ACCURACY", "INTERVAL", "CAL. ERROR", "BRIER", "NLL"),
    *("COVERAGE", "MASS", "MARGIN", "STABLE", "ROWS/S"),
)


def run(flags: TuneFlags) -> None:
    """Try all candidates, show the table, write the best one.

    Raises `click.UsageError` for flags that cannot be combined, and what `core_tasks.tune` raises.
    """
    tasks = _tasks(flags)
    models = tuple(dict.fromkeys(flags.models))
    flags = replace(flags, model=models[0] if models else tasks[0].model or None)
    flags.need_model()
    if flags.output:
        outputs.check(flags.output, FILE, overwrite=flags.overwrite)
    levels = _levels(flags)
    if len(models) > 1 and flags.gold is None:
        raise click.UsageError("Several models can only be compared on gold labels: pass --gold.")
    rows = gold_rows.read(flags, tasks[0].labels)
    if len(models) > 1:
        flags, tried = best_of(models, flags, tasks, rows, levels)
    else:
        tried = try_model(flags, tasks, rows, levels)
        _show(tried.tuning, tried.head, flags.as_json)
    tuning = tried.tuning
    _tell(tuning)
    if tuning.threshold is not None:
        gold_rows.warn_of_repeats(rows.texts)
        gold_rows.threshold_value(tuning.threshold, flags.error_rate or 0.0)
    if tried.head is not None:
        _tell_of_head(tried.head, flags)
    if flags.output:
        replace(tuning.best, model=flags.need_model()).save(flags.output)
        output.say(
            f"{flags.output}: {tuning.trials[0].method}, level {tuning.best.level}. Use it with: "
            "classify --task"
        )


# ----------------------------------------------------------------- candidates


def _tasks(flags: TuneFlags) -> list[Task]:
    """Return all candidates. Raises `click.UsageError` for none, and `TaskError` for a bad one."""
    tasks = [load_task(name) for name in flags.tasks]
    templates = [Template.typed(source).source for source in flags.templates]
    if flags.template_list:
        lines = checks.read_text(flags.template_list).split("\n")
        templates += [Template.typed(line).source for line in lines if line.strip()]

    # Each template with the labels as they are, and with --words, if given.
    if templates:
        labels = parse_labels(flags.labels, flags.labels_file)
        labels = labels or (tasks[0].labels if tasks else ())
        if not labels:
            raise click.UsageError("Pass --labels, or a --task that has them.")
        prefix = given(label_prefix=flags.label_prefix)
        words = _words(flags.words)
        for template in dict.fromkeys(templates):
            tasks.append(Task(template, labels, **prefix))
            if words:
                tasks.append(Task(template, labels, words=words, **prefix))
    elif flags.words or flags.labels:
        raise click.UsageError("--labels and --words require --template.")

    if not tasks:
        raise click.UsageError("Nothing to try. Pass --template, --templates or --task.")
    return tasks


def _words(pairs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the words of each label from repeated ``LABEL=A,B``.

    Raises `click.UsageError` for any other form.
    """
    words_of: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        label, equals, words = pair.partition("=")
        named = tuple(word.strip() for word in words.split(",") if word.strip())
        if not (label and equals and named):
            raise click.UsageError(f"Expected --words LABEL=A,B, got {pair!r}.")
        words_of[label] = (*words_of.get(label, ()), *named)
    return words_of


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


def _show(tuning: Tuning, head: Mapping[str, Any] | None, as_json: bool) -> None:
    if as_json:
        output.write_bytes(output.json_lines([{**tuning.to_dict(), "head": head}]))
        return
    rows = [_cells(trial) for trial in tuning.trials]
    columns = [place for place in range(len(_HEAD)) if any(row[place] for row in rows)]
    lines = [[row[place] for place in columns] for row in rows]
    names = [_HEAD[place] for place in columns]
    if output.is_terminal():
        output.draw(names, lines[:_SHOWN], cut=True)
        if len(lines) > _SHOWN:
            output.say(f"and {len(lines) - _SHOWN} more; --json has all")
    else:
        output.write_lines([names, *lines])


def _cells(trial: Trial) -> list[str]:
    own = [f"{label}={'|'.join(words)}" for label, words in trial.task.words.items()]
    plain = all(words == (label,) for label, words in trial.task.words.items())
    low_high = trial.interval
    return [
        trial.task.template.replace("\n", "\\n"),
        "" if plain else " ".join(own),
        f"{trial.method} ({trial.level})" if trial.level != "raw" else "raw",
        _figure(trial.accuracy),
        f"{low_high[0]:.3f}-{low_high[1]:.3f}" if low_high else "",
        _figure(trial.calibration_error),
        _figure(trial.brier),
        _figure(trial.nll),
        _figure(trial.coverage),
        f"{trial.label_mass:.2g}",
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
        output.say(
            f"The best of {len(tuning.trials)} by stability, label mass and margin, which are weak "
            "signals. A few dozen rows with gold labels (--gold) give a better choice."
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


def _tell_of_head(head: Mapping[str, Any], flags: TuneFlags) -> None:
    low, high = (100 * end for end in head["accuracy_interval"])
    command = ["infer-cli", "learn", "-m", str(flags.model), "-i", str(flags.file)]
    command += ["--gold", str(flags.gold), "-o", "head.safetensors"]
    output.say(
        f"A classifier head (L2) needs no prompt. Its accuracy on held-out rows is "
        f"{100 * head['accuracy']:.1f} % ({low:.1f} to {high:.1f}), its calibration error "
        f"{head['calibration_error']:.3f}. Train it with:\n"
        f"{' '.join(map(quoted, command))}"
    )
