"""Calibrates a task on rows, with or without gold labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from core.kit.labels import softmax
from core.kit.support import compares_sentences
from core.protocols import Capability, TextModel
from core.system import outputs
from core_cli import output, suggestions
from core_cli.flags import FitFlags, given, parse_labels
from core_cli.rows import checks, gold_labels
from core_cli.tasks import gold_rows, yardsticks
from core_cli.tasks.gold_rows import Texts
from core_cli.tasks.question import refuse_own
from core_tasks import Task, load_task
from core_tasks.agreement.gaps import error_text
from core_tasks.agreement.measures import wilson
from core_tasks.calibration import (
    Adjustment,
    Quality,
    far_from_uniform,
    fit_isotonic,
    fit_temperature,
    quality,
    row_threshold_for,
)
from core_tasks.files import FILE
from core_tasks.fitting import prior_of
from core_tasks.folds import FOLDS, folds_of
from core_tasks.template import TEXT
from core_tasks.tuning.judging import left_out

PRIORS, FITTED = ("content-free", "batch", "mean", "pmi"), ("temperature", "isotonic")
OF_ROWS = ("batch", "mean")
"""The priors that are fitted on the rows."""
Row = Sequence[float]  # the labels' log-probabilities after one text, or other scores


@dataclass(frozen=True, slots=True)
class Asked:
    """The raw answers to one question about the rows, and the index of the correct ones.

    ``folds`` are the folds of the rows for cross-validation.
    """

    question: str
    rows: Sequence[Row]
    gold: list[int]
    folds: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateFlags(FitFlags):
    """Flags of ``calibrate``."""

    output: str
    task: str | None = None
    template: str | None = None
    template_file: str | None = None
    labels: str | None = None
    labels_file: str | None = None
    label_prefix: str | None = None
    label_sentence: str | None = None
    methods: tuple[str, ...] = ()
    strength: float | None = None
    error_rate: float | None = None


def run(flags: CalibrateFlags) -> None:
    """Fit a task and write it.

    Raises `click.UsageError` for flags that make no sense together, and `CalibrationError` for rows
    that cannot be fitted.
    """
    task = _task(flags)
    methods = _methods(flags, task)
    flags = replace(flags, model=flags.model or task.model or None)
    model_name = flags.need_model()
    outputs.check(flags.output, FILE, overwrite=flags.overwrite)
    rows = gold_rows.read(flags, task.labels, many=task.mode == "many")

    from core_cli.loading import explain, load

    loaded = load(model_name, flags.load_config(), Capability.LABELS)
    with loaded.model as model:
        if flags.verbose:
            explain(loaded)
        sentences = compares_sentences(model)
        if not (sentences or flags.task or flags.template or flags.template_file):
            raise click.UsageError("With a language model, calibrate requires --template.")
        if sentences and not flags.methods:
            methods = tuple("mean" if method == PRIORS[0] else method for method in methods)
        fitted = _fitted(task, model, rows, methods, flags.strength)
        if rows.gold is not None:
            fitted = _judged(task, fitted, model, rows, methods, flags)
        else:
            _tell_counts(task, fitted, model, rows.texts)
    replace(fitted, model=model_name).save(flags.output)
    command = suggestions.classify_command(flags, task=flags.output)
    output.say(f"{flags.output}: {fitted.level}. Use it with:\n{command}")


# ------------------------------------------------------------------ the request


def _task(flags: CalibrateFlags) -> Task:
    if flags.task:
        refuse_own(
            "task",
            labels=flags.labels,
            labels_file=flags.labels_file,
            label_prefix=flags.label_prefix,
            label_sentence=flags.label_sentence,
            template=flags.template,
            template_file=flags.template_file,
        )
        return load_task(flags.task)
    template = checks.template_of(flags.template, flags.template_file, records=False)
    labels = parse_labels(flags.labels, flags.labels_file) or gold_labels.labels_of_rows(flags)
    if not labels:
        raise click.UsageError(
            "Pass --template and --labels, or --task to start from a task file. For an encoder, "
            "pass --labels. With --gold, the labels are those that occur."
        )
    joining = given(label_prefix=flags.label_prefix, label_sentence=flags.label_sentence)
    return Task(template.source if template else f"{{{TEXT}}}", labels, **joining)


def _methods(flags: CalibrateFlags, task: Task) -> tuple[str, ...]:
    """Return the requested prior, if any, and then the methods fitted on gold labels.

    Both by default, where the task has none yet: docs/levels.md has what that is worth.
    """
    prior = PRIORS[:1] if task.level == "raw" or not flags.gold else ()
    methods = flags.methods or (*prior, *(("temperature",) if flags.gold else ()))
    for kind in (PRIORS, FITTED):
        if len(several := [method for method in methods if method in kind]) > 1:
            raise click.UsageError(
                f"--method {several[0]} and --method {several[1]} cannot be combined. Remove one."
            )
    if flags.gold is None and (needs := [name for name in methods if name in FITTED]):
        raise click.UsageError(f"--method {needs[0]} requires --gold FIELD.")
    if flags.gold is None and flags.error_rate is not None:
        raise click.UsageError("--error-rate requires --gold FIELD.")
    if flags.strength is not None and not set(methods) & set(PRIORS):
        raise click.UsageError("--strength requires a prior, for example --method batch.")
    return tuple(sorted(methods, key=(*PRIORS, *FITTED).index))


# ------------------------------------------------------------------ fitting


def _fitted(
    task: Task, model: TextModel, rows: Texts, methods: Sequence[str], strength: float | None
) -> Task:
    """Return the task with all methods applied in order."""
    for method in methods:
        if method in PRIORS:
            texts = rows.texts if method in OF_ROWS else None
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
    flags: CalibrateFlags,
) -> Task:
    """Print the quality on held-out rows, and return the task with its threshold.

    In a multi-label task each label is a separate question; all are reported together.
    """
    questions = _asked(replace(task, calibration=None), model, rows)
    adjusted = [_out_of_fold(question, methods, flags.strength, fitted) for question in questions]
    before = [row for question in questions for row in question.rows]
    after = [row for adjusted_rows in adjusted for row in adjusted_rows]
    gold = [place for question in questions for place in question.gold]
    if flags.error_rate is not None:
        gold_rows.warn_of_repeats(rows.texts)
    raw, held_out = quality(before, gold), quality(after, gold)
    output.say(f"raw: {_in_words(raw)}")
    output.say(f"{fitted.level}: {_in_words(held_out)}, on held-out rows ({FOLDS} folds)")
    if task.mode != "many":
        _compare(rows, raw, held_out)
    if flags.error_rate is None:
        return fitted

    # In a multi-label task the threshold is for yes, the first answer.
    answer = _yes if task.mode == "many" else _best
    columns = [
        [answer(row, label) for row, label in zip(adjusted_rows, question.gold, strict=True)]
        for adjusted_rows, question in zip(adjusted, questions, strict=True)
    ]
    threshold = row_threshold_for([*zip(*columns, strict=True)], flags.error_rate)
    return replace(fitted, threshold=gold_rows.threshold_value(threshold, flags.error_rate))


def _compare(rows: Texts, raw: Quality, fitted: Quality) -> None:
    """Print what guessing reaches, and a warning if the calibration error has risen."""
    baseline = yardsticks.say(rows.texts, rows.gold or ())
    low, _ = wilson(round(fitted.accuracy * fitted.rows), fitted.rows) or (0.0, 1.0)
    yardsticks.say_next(baseline, low)
    if fitted.calibration_error > raw.calibration_error:
        output.warn(
            "the probabilities are less calibrated than without this calibration: error "
            f"{fitted.calibration_error:.3f} instead of {raw.calibration_error:.3f}. Try --method "
            "temperature or --method isotonic, or more rows."
        )


def _best(row: Row, gold: int) -> tuple[float, bool]:
    """Return the probability of the likeliest label, and whether it is correct."""
    shares = softmax(row)
    return max(shares), shares.index(max(shares)) == gold


def _yes(row: Row, gold: int) -> tuple[float, bool]:
    return softmax(row)[0], gold == 0


def _asked(plain: Task, model: TextModel, rows: Texts) -> list[Asked]:
    """Return the raw answers to each question, for the rows that did not fail."""
    assert rows.gold is not None
    decisions = plain.classify(model, rows.texts)
    known = [row for row, decision in enumerate(decisions) if decision.error is None]
    texts, right = [rows.texts[row] for row in known], [rows.gold[row] for row in known]
    questions = []
    for question in plain.questions:
        parts = [decisions[n].parts[question] if question else decisions[n] for n in known]
        label_scores = [[*(part.scores or {}).values()] for part in parts]
        if question:  # yes is the first answer
            gold = [0 if question in holding else 1 for holding in right]
        else:
            gold = [plain.labels.index(label) for label in right]
        questions.append(Asked(question, label_scores, gold, folds_of(texts, gold)))
    return questions


def _out_of_fold(
    question: Asked, methods: Sequence[str], strength: float | None, fitted: Task
) -> list[Row]:
    """Return the adjusted rows, each fold fitted on the others.

    A prior that uses no rows is the same for all folds.
    """

    def fit(rows: Sequence[int]) -> Adjustment:
        known, right = [question.rows[n] for n in rows], [question.gold[n] for n in rows]
        own = next((method for method in methods if method in OF_ROWS), None)
        prior = prior_of(known, own, strength) if own else _of(fitted, question.question)
        if FITTED[0] in methods:
            return fit_temperature(known, right, prior)
        return fit_isotonic(known, right, prior) if FITTED[1] in methods else prior

    numbers = range(len(question.rows))
    adjusted = left_out(question.rows, numbers, question.folds, fit)
    return [adjusted[n] for n in numbers]


def _of(fitted: Task, question: str) -> Adjustment:
    """Return the prior that a task has for a question."""
    if fitted.calibration is None:
        return Adjustment()
    return Adjustment(prior=fitted.calibration.adjustments[question].prior)


# ------------------------------------------------------------------ messages


def _in_words(quality: Quality) -> str:
    error = error_text(quality.calibration_error, quality.calibration_error_interval)
    rows = output.counted(quality.rows, "row")
    return (
        f"accuracy {100 * quality.accuracy:.1f} % of {rows}, {error}, "
        f"Brier {quality.brier:.3f}, NLL {quality.nll:.3f}"
    )


def _tell_prior(task: Task, method: str) -> None:
    """Print a note if no prior is subtracted, or if one is far from uniform."""
    if task.calibration is None:
        output.say(
            "No prior is subtracted: with this prompt the model does not find two labels that a "
            "text names. Try other prompts with tune."
        )
        return
    why = (
        f"If that is its true share, {method} loses accuracy; --method content-free does not "
        "depend on the rows."
        if method in OF_ROWS
        else "The prompt favours it before seeing a text. Try other prompts with tune."
    )
    for question, adjustment in task.calibration.adjustments.items():
        favourite = far_from_uniform(adjustment.prior)
        if favourite is not None:
            of = f" of {question!r}" if question else ""
            place, share = favourite
            label = task.calibration.labels[place]
            output.say(
                f"The prior{of} is far from uniform: {label!r} has {100 * share:.0f} %. {why}"
            )


def _tell_counts(task: Task, fitted: Task, model: TextModel, texts: Sequence[str]) -> None:
    """Print how often each label is chosen, before and after."""
    for name, variant in (("raw", replace(task, calibration=None)), (fitted.level, fitted)):
        decisions = variant.classify(model, texts)
        chosen = [label for decision in decisions for label in decision.labels]
        counts = ", ".join(f"{label} {chosen.count(label)}" for label in task.labels)
        output.say(f"{name}: {counts}")
