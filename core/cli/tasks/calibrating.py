"""From rows, with their right labels or without, to a task with a calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from core.agreement.gaps import error_text
from core.calibration import (
    Adjustment,
    Quality,
    batch_prior,
    far_from_uniform,
    fit_isotonic,
    fit_temperature,
    quality,
    row_threshold_for,
)
from core.cli import output, settings
from core.cli.rows import checks
from core.cli.tasks import accepting, gold_rows
from core.cli.tasks.asking import task_of
from core.cli.tasks.gold_rows import Texts
from core.labels import softmax
from core.protocols import Capability, TextModel
from core.system import outputs
from core.tasks import Task
from core.tasks.files import FILE
from core.tasks.folds import FOLDS, folds_of
from core.tuning.judging import left_out

PRIORS, FITTED = ("content-free", "batch", "pmi"), ("temperature", "isotonic")
Row = Sequence[float]  # the labels' log-probabilities behind one text


@dataclass(frozen=True, slots=True)
class Asked:
    """What the model said of the rows to one question: raw, and the place of the right answer.

    ``folds`` are those that the rows are judged by.
    """

    question: str
    rows: Sequence[Row]
    gold: list[int]
    folds: list[int]


def run(flags: Mapping[str, Any]) -> None:
    """Fit a task as the flags say, and write it.

    Raises `click.UsageError` for flags that make no sense together, and `CalibrationError` for rows
    that cannot be fitted.
    """
    task = _task(flags)
    methods = _methods(flags, task)
    given = {**flags, "model": flags["model"] or task.model or None}
    settings.need_model(given)
    outputs.check(given["output"], FILE, overwrite=given["overwrite"])
    rows = gold_rows.read(given, task.labels, many=task.mode == "many")

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


def _methods(flags: Mapping[str, Any], task: Task) -> tuple[str, ...]:
    """The prior, if one is wanted, and then what is fitted on gold labels.

    Both by default, where the task has none yet: docs/levels.md has what that is worth.
    """
    prior = PRIORS[:1] if task.level == "raw" or not flags["gold"] else ()
    methods = flags["methods"] or (*prior, *(("temperature",) if flags["gold"] else ()))
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


# ------------------------------------------------------------------ what is fitted


def _fitted(
    task: Task, model: TextModel, rows: Texts, methods: Sequence[str], strength: float | None
) -> Task:
    """The task with all methods, one above the other."""
    for method in methods:
        if method in PRIORS:
            texts = rows.texts if method == "batch" else None
            task = task.fit_prior(model, texts, method, strength=strength)  # type: ignore[arg-type]
            _tell_prior(task, method)
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
    """Say what the calibration is worth on rows that it was not fitted on; find the threshold.

    Where several labels may hold, each is a question of its own, and all of them are told together.
    """
    asked = _asked(replace(task, calibration=None), model, rows)
    adjusted = [_out_of_fold(each, methods, flags["strength"], fitted) for each in asked]
    before = [row for each in asked for row in each.rows]
    after = [row for each in adjusted for row in each]
    gold = [place for each in asked for place in each.gold]
    if flags["error_rate"] is not None:
        accepting.warn_of_repeats(rows.texts)
    output.say(f"raw: {_told(quality(before, gold))}")
    output.say(f"{fitted.level}: {_told(quality(after, gold))}, of {FOLDS} folds held out")
    if flags["error_rate"] is None:
        return fitted

    # Where several labels may hold, the threshold is for yes, which stands first.
    answer = _yes if task.mode == "many" else _best
    columns = [
        [answer(row, label) for row, label in zip(each, one.gold, strict=True)]
        for each, one in zip(adjusted, asked, strict=True)
    ]
    threshold = row_threshold_for([*zip(*columns, strict=True)], flags["error_rate"])
    return replace(fitted, threshold=accepting.value_of(threshold, flags["error_rate"]))


def _best(row: Row, gold: int) -> tuple[float, bool]:
    """The probability of the likeliest label, and whether it is right."""
    shares = softmax(row)
    return max(shares), shares.index(max(shares)) == gold


def _yes(row: Row, gold: int) -> tuple[float, bool]:
    return softmax(row)[0], gold == 0


def _asked(plain: Task, model: TextModel, rows: Texts) -> list[Asked]:
    """What the model says raw to each question, of the rows that it can be asked about."""
    assert rows.gold is not None
    decisions = plain.classify(model, rows.texts)
    known = [row for row, decision in enumerate(decisions) if decision.error is None]
    texts, right = [rows.texts[row] for row in known], [rows.gold[row] for row in known]
    found = []
    for question in plain.questions:
        parts = [decisions[n].parts[question] if question else decisions[n] for n in known]
        said = [[*(part.logprobs or {}).values()] for part in parts]
        if question:  # yes stands first
            gold = [0 if question in holding else 1 for holding in right]
        else:
            gold = [plain.labels.index(label) for label in right]
        found.append(Asked(question, said, gold, folds_of(texts, gold)))
    return found


def _out_of_fold(
    asked: Asked, methods: Sequence[str], strength: float | None, fitted: Task
) -> list[Row]:
    """The adjusted rows, each fifth by what the others say; a prior of no rows is that of all."""

    def fit(rows: Sequence[int]) -> Adjustment:
        known, right = [asked.rows[n] for n in rows], [asked.gold[n] for n in rows]
        prior = _prior(known, strength) if "batch" in methods else _of(fitted, asked.question)
        if FITTED[0] in methods:
            return fit_temperature(known, right, prior)
        return fit_isotonic(known, right, prior) if FITTED[1] in methods else prior

    numbers = range(len(asked.rows))
    found = left_out(asked.rows, numbers, asked.folds, fit)
    return [found[n] for n in numbers]


def _prior(rows: Sequence[Row], strength: float | None) -> Adjustment:
    return batch_prior(rows) if strength is None else batch_prior(rows, strength)


def _of(fitted: Task, question: str) -> Adjustment:
    """The prior that a task has for a question."""
    if fitted.calibration is None:
        return Adjustment()
    return Adjustment(prior=fitted.calibration.adjustments[question].prior)


# ------------------------------------------------------------------ what is told


def _told(found: Quality) -> str:
    error = error_text(found.calibration_error, found.calibration_error_interval)
    return (
        f"right {100 * found.accuracy:.1f} % of {output.counted(found.rows, 'row')}, {error}, "
        f"Brier {found.brier:.3f}, NLL {found.nll:.3f}"
    )


def _tell_prior(task: Task, method: str) -> None:
    """Say where no prior is taken off, and where one is far from equal for all labels."""
    if task.calibration is None:
        output.say(
            "No prior is taken off: with this prompt the model does not find two labels that a "
            "text names. Try other prompts with tune."
        )
        return
    why = (
        "Where that is how often it is right, batch loses answers: --method content-free goes by "
        "no rows."
        if method == "batch"
        else "The prompt prefers it before it has a text. Try others with tune."
    )
    for question, adjustment in task.calibration.adjustments.items():
        found = far_from_uniform(adjustment.prior)
        if found is not None:
            of = f" of {question!r}" if question else ""
            label = task.calibration.labels[found[0]]
            output.say(
                f"The prior{of} is far from uniform: {label!r} has {100 * found[1]:.0f} %. {why}"
            )


def _tell_counts(task: Task, fitted: Task, model: TextModel, texts: Sequence[str]) -> None:
    """Say how often each label is chosen, before and after."""
    for name, each in (("raw", replace(task, calibration=None)), (fitted.level, fitted)):
        found = each.classify(model, texts)
        chosen = [label for decision in found for label in decision.labels]
        counts = ", ".join(f"{label} {chosen.count(label)}" for label in task.labels)
        output.say(f"{name}: {counts}")
