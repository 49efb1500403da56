"""From rows, with their right labels or without, to a task with a calibration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from core.calibration import (
    Adjustment,
    Quality,
    batch_prior,
    fit_isotonic,
    fit_temperature,
    quality,
    threshold_for,
)
from core.cli import output, settings
from core.cli.rows import asking, checks
from core.cli.tasks.asking import task_of
from core.labels import softmax
from core.protocols import Capability, TextModel
from core.tasks import Task

if TYPE_CHECKING:
    from core.cli.reading import row as reading

PRIORS, FITTED = ("batch", "content-free", "pmi"), ("temperature", "isotonic")
_FOLDS = 5
Row = Sequence[float]  # the labels' log-probabilities behind one text


@dataclass(frozen=True, slots=True)
class Texts:
    """Rows that can be asked, and their right labels where they have some."""

    texts: list[str]
    gold: list[str] | None


def run(flags: Mapping[str, Any]) -> None:
    """Fit a task as the flags say, and write it.

    Raises `click.UsageError` for flags that make no sense together, and `CalibrationError` for rows
    that cannot be fitted.
    """
    task = _task(flags)
    methods = _methods(flags)
    given = {**flags, "model": flags["model"] or task.model or None}
    settings.need_model(given)
    if os.path.exists(given["output"]) and not given["overwrite"]:
        raise click.UsageError(f"{given['output']} exists. --overwrite writes it anew.")
    rows = _texts(given, task)

    from core.cli.loading import explain, load

    loaded = load(given["model"], settings.load_config(given), Capability.LABELS)
    with loaded.model as model:
        if given["verbose"]:
            explain(loaded)
        fitted = _fitted(task, model, rows, methods, given["strength"])
        if rows.gold is not None:
            fitted = _judged(task, fitted, model, rows, methods, given)
        else:
            _tell_counts(task, fitted, model, rows.texts)
    replace(fitted, model=given["model"]).save(given["output"])
    output.say(f"{given['output']}: level {fitted.level}. Ask it with: classify --task")


# ------------------------------------------------------------------ what is asked for


def _task(flags: Mapping[str, Any]) -> Task:
    if flags["task"]:
        return task_of(flags)
    template = checks.template_of({**flags, "prompts": (), "form": "text"})
    labels = settings.parse_labels(flags["labels"], flags["labels_file"])
    if template is None or not labels:
        raise click.UsageError("Give --template and --labels, or a --task to begin with.")
    prefix = settings.given(flags, ("label_prefix",))
    return Task(template.source, labels, **prefix)


def _methods(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """The prior, if one is wanted, and then what is fitted on gold labels."""
    methods = flags["methods"] or (("temperature",) if flags["gold"] else ("batch",))
    for kind in (PRIORS, FITTED):
        if len(several := [method for method in methods if method in kind]) > 1:
            raise click.UsageError(f"Give --method {several[0]} or {several[1]}, not both.")
    if flags["gold"] is None and (needs := [each for each in methods if each in FITTED]):
        raise click.UsageError(f"--method {needs[0]} is fitted on right labels: give --gold FIELD.")
    if flags["gold"] is None and flags["error_rate"] is not None:
        raise click.UsageError("--error-rate is reckoned on right labels: give --gold FIELD.")
    if flags["strength"] is not None and not set(methods) & set(PRIORS):
        raise click.UsageError("--strength is a prior's: give --method batch, say.")
    return tuple(sorted(methods, key=(*PRIORS, *FITTED).index))


def _texts(flags: Mapping[str, Any], task: Task) -> Texts:
    if flags["file"] is None:
        raise click.UsageError("No rows. Give them with -i FILE.")
    if flags["gold"] and task.mode == "many":
        raise click.UsageError("--gold has one label a row, and the task finds many.")
    reading = {**flags, "prompts": (), "id_field": None, "shard": None, "labels": "as a task"}
    with asking.opened(reading, None) as found:
        rows = list(found.rows)
    sound = [row for row in rows if row.error is None]
    if flags["gold"] is None:
        kept, gold = sound, None
    else:
        kept = [row for row in sound if row.fields.get(flags["gold"]) not in (None, "")]
        gold = [str(row.fields[flags["gold"]]) for row in kept]
    for row, label in zip(kept, gold or (), strict=gold is not None):
        if label not in task.labels:
            known = ", ".join(map(repr, task.labels))
            raise click.UsageError(f"{row.place} has the label {label!r}, and the task {known}.")
    if len(kept) < len(rows):
        _warn_of_left_out(rows, kept)
    if not kept:
        raise click.UsageError(f"No row of {flags['file']} can be fitted on.")
    return Texts([row.text for row in kept], gold)


def _warn_of_left_out(rows: Sequence[reading.Row], kept: Sequence[reading.Row]) -> None:
    count = output.counted(len(rows) - len(kept), "row")
    first = next((str(row.error) for row in rows if row.error is not None), None)
    output.warn(f"{count} left out: {first or 'they have no right label'}")


# ------------------------------------------------------------------ what is fitted


def _fitted(
    task: Task, model: TextModel, rows: Texts, methods: Sequence[str], strength: float | None
) -> Task:
    """The task with all methods, one above the other."""
    for method in methods:
        if method in PRIORS:
            texts = rows.texts if method == "batch" else None
            task = task.fit_prior(model, texts, method, strength=strength)  # type: ignore[arg-type]
        else:
            assert rows.gold is not None
            task = task.fit(model, rows.texts, rows.gold, method)  # type: ignore[arg-type]
    return task


def _judged(
    task: Task,
    fitted: Task,
    model: TextModel,
    rows: Texts,
    methods: Sequence[str],
    flags: Mapping[str, Any],
) -> Task:
    """Say what the calibration is worth on rows that it was not fitted on; find the threshold."""
    assert rows.gold is not None
    raw = replace(task, calibration=None).classify(model, rows.texts)
    asked = zip(raw, rows.gold, strict=True)
    known = [(decision.logprobs, gold) for decision, gold in asked if decision.logprobs is not None]
    before = [[logprobs[label] for label in task.labels] for logprobs, _ in known]
    gold = [task.labels.index(label) for _, label in known]

    after = _out_of_fold(before, gold, methods, flags["strength"], fitted)
    output.say(f"raw: {_told(quality(before, gold))}")
    output.say(f"{fitted.level}: {_told(quality(after, gold))}, of {_FOLDS} folds held out")
    if flags["error_rate"] is None:
        return fitted
    return replace(fitted, threshold=_threshold(after, gold, flags["error_rate"]))


def _out_of_fold(
    rows: Sequence[Row],
    gold: Sequence[int],
    methods: Sequence[str],
    strength: float | None,
    fitted: Task,
) -> list[Row]:
    """The adjusted rows, each fifth by what the others say; a prior of no rows is that of all."""
    found: dict[int, Row] = {}
    for fold in range(_FOLDS):
        rest = [n for n in range(len(rows)) if n % _FOLDS != fold]
        known, right = [rows[n] for n in rest], [gold[n] for n in rest]
        if not rest:
            continue
        prior = _prior(known, strength) if "batch" in methods else _of(fitted)
        adjust = prior
        if FITTED[0] in methods:
            adjust = fit_temperature(known, right, prior)
        elif FITTED[1] in methods:
            adjust = fit_isotonic(known, right, prior)
        found.update((n, adjust(rows[n])) for n in range(fold, len(rows), _FOLDS))
    return [found.get(n, [*row]) for n, row in enumerate(rows)]


def _prior(rows: Sequence[Row], strength: float | None) -> Adjustment:
    return batch_prior(rows) if strength is None else batch_prior(rows, strength)


def _of(fitted: Task) -> Adjustment:
    """The prior that a task has."""
    assert fitted.calibration is not None
    [adjustment] = fitted.calibration.adjustments.values()
    return Adjustment(prior=adjustment.prior)


def _threshold(rows: Sequence[Row], gold: Sequence[int], rate: float) -> float:
    shares = [softmax(row) for row in rows]
    best = [max(each) for each in shares]
    right = [each.index(max(each)) == label for each, label in zip(shares, gold, strict=True)]
    found = threshold_for(best, right, rate)
    if found is None:
        raise click.ClickException(
            f"No threshold keeps the errors below {rate:g} on these rows. Give more rows, or a "
            "larger --error-rate."
        )
    output.say(
        f"accepted from {found.value:.4f}: {100 * found.coverage:.1f} % of the rows, "
        f"{found.errors} of {found.kept} wrong (at most {100 * found.error_bound:.1f} %)"
    )
    return found.value


# ------------------------------------------------------------------ what is told


def _told(found: Quality) -> str:
    return (
        f"right {100 * found.accuracy:.1f} % of {output.counted(found.rows, 'row')}, calibration "
        f"error {found.expected_calibration_error:.3f}, Brier {found.brier:.3f}, "
        f"NLL {found.nll:.3f}"
    )


def _tell_counts(task: Task, fitted: Task, model: TextModel, texts: Sequence[str]) -> None:
    """Say how often each label is chosen, before and after."""
    for name, each in (("raw", replace(task, calibration=None)), (fitted.level, fitted)):
        chosen = [decision.label for decision in each.classify(model, texts)]
        counts = ", ".join(f"{label} {chosen.count(label)}" for label in task.labels)
        output.say(f"{name}: {counts}")
