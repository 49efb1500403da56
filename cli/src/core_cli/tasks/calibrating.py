"""Calibrates a task on rows, with or without gold labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import click

from core.kit.labels import softmax
from core.kit.support import compares_sentences
from core.protocols import Capability
from core.system import outputs
from core_cli import output, suggestions, yardsticks
from core_cli.flags import FitFlags, RowFlags, given, parse_labels
from core_cli.progress import working
from core_cli.rows import checks, gold_labels
from core_cli.rows.shortening import longest_prompt, shortened
from core_cli.tasks import gold_rows
from core_cli.tasks.gold_rows import Texts
from core_cli.tasks.question import refuse_own
from core_tasks import Task, load_task
from core_tasks.agreement.gaps import error_text
from core_tasks.agreement.measures import wilson
from core_tasks.calibration import Quality, far_from_uniform, quality, row_threshold_for
from core_tasks.files import FILE
from core_tasks.folds import FOLDS
from core_tasks.template import TEXT
from core_tasks.tuning.calibrating import Answers, answers_of
from core_tasks.tuning.methods import OF_ROWS, Method, Row
from core_tasks.words import flat

PRIORS, FITTED = ("content-free", "batch", "mean", "pmi"), ("temperature", "isotonic")


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

    with working(flags, model_name) as work:
        loaded = load(model_name, flags.load_config(), Capability.LABELS)
        with loaded.model as model:
            if flags.verbose:
                explain(loaded)
            sentences = compares_sentences(model)
            if not (sentences or flags.task or flags.template or flags.template_file):
                raise click.UsageError("With a language model, calibrate requires --template.")
            if sentences and not flags.methods:
                methods = tuple("mean" if method == PRIORS[0] else method for method in methods)
            method = _method(methods, flags.strength)
            priors = [method.prior] if method.prior else []
            prompt = partial(longest_prompt, task)
            texts = shortened(loaded, rows.texts, flags.truncate, [prompt], flat(task.words))
            answers = answers_of(model, task, texts, rows.gold, priors, progress=work)
            fitted = answers.fitted(method)
            prior = answers.fitted(replace(method, fitted="")) if method.prior else None
            counts = [] if rows.gold is not None else _counts(answers, fitted)
            tried = [] if rows.gold is None else _tried(answers, method)
    for line in counts:
        output.say(line)
    if prior is not None:
        _tell_prior(prior, method.prior)
    if rows.gold is not None:
        fitted = _judged(answers, fitted, rows, method, tried, flags)
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


def _method(methods: Sequence[str], strength: float | None) -> Method:
    prior = next((method for method in methods if method in PRIORS), "")
    return Method(prior, next((method for method in methods if method in FITTED), ""), strength)


# ------------------------------------------------------------------ quality on held-out rows


@dataclass(frozen=True, slots=True)
class Tried:
    """A method, its rows held out for each question, and the quality of all of them together."""

    method: Method
    rows: list[list[Row]]
    quality: Quality


def _tried(answers: Answers, method: Method) -> list[Tried]:
    """Return no calibration, the method and, if it is less calibrated, the others to offer.

    In a multi-label task each label is a separate question; all are reported together.
    """
    raw, own = _held_out(answers, Method()), _held_out(answers, method)
    if own.quality.calibration_error <= raw.quality.calibration_error:
        return [raw, own]
    prior = method.prior
    pairs = [("", FITTED[0]), (prior, FITTED[0]), (prior, ""), ("", FITTED[1]), (prior, FITTED[1])]
    others = [Method(*pair) for pair in dict.fromkeys(pairs) if any(pair)]
    return [raw, own, *(_held_out(answers, other) for other in others if other != method)]


def _held_out(answers: Answers, method: Method) -> Tried:
    questions = answers.questions.values()
    if method == Method():
        rows = [[*question.answers.rows] for question in questions]
    else:
        rows = [question.held_out(method) for question in questions]
    gold = [place for question in questions for place in question.gold]
    return Tried(method, rows, quality([row for own in rows for row in own], gold))


def _judged(
    answers: Answers,
    fitted: Task,
    rows: Texts,
    method: Method,
    tried: Sequence[Tried],
    flags: CalibrateFlags,
) -> Task:
    """Print the quality on held-out rows, and return the task with its threshold."""
    raw, own, *others = tried
    if flags.error_rate is not None:
        gold_rows.warn_of_repeats(rows.texts)
    output.say(f"raw: {_in_words(raw.quality)}")
    output.say(f"{fitted.level}: {_in_words(own.quality)}, on held-out rows ({FOLDS} folds)")
    if fitted.mode != "many":
        _compare(rows, own.quality, flags)
    if own.quality.calibration_error > raw.quality.calibration_error:
        _warn_of_worse(raw, own, others, flags)
    if flags.error_rate is None:
        return fitted

    # In a multi-label task the threshold is for yes, the first answer.
    answer = _yes if fitted.mode == "many" else _best
    columns = [
        [answer(row, label) for row, label in zip(adjusted_rows, question.gold, strict=True)]
        for adjusted_rows, question in zip(own.rows, answers.questions.values(), strict=True)
    ]
    threshold = row_threshold_for([*zip(*columns, strict=True)], flags.error_rate)
    return replace(fitted, threshold=gold_rows.threshold_value(threshold, flags.error_rate))


def _compare(rows: Texts, fitted: Quality, flags: CalibrateFlags) -> None:
    """Print what guessing reaches, and what to try next if that is as good."""
    baseline = yardsticks.say(rows.texts, rows.gold or ())
    low, _ = wilson(round(fitted.accuracy * fitted.rows), fitted.rows) or (0.0, 1.0)
    yardsticks.say_next(baseline, low, flags)


def _warn_of_worse(raw: Tried, own: Tried, others: Sequence[Tried], flags: CalibrateFlags) -> None:
    """Warn that the calibration error has risen, and offer the best method that does not raise it.

    The best has the highest accuracy, then the highest likelihood.
    """
    error, before = own.quality.calibration_error, raw.quality.calibration_error
    output.warn(
        "the probabilities are less calibrated than without this calibration: error "
        f"{error:.3f} instead of {before:.3f}."
    )
    calibrated = [other for other in others if other.quality.calibration_error <= before]
    if not calibrated:
        output.say("No other method keeps the error of the raw probabilities. Try more rows.")
        return
    best = max(calibrated, key=lambda other: (other.quality.accuracy, -other.quality.nll))
    names = [name for name in (best.method.prior, best.method.fitted) if name]
    question = RowFlags(
        task=flags.task,
        template=flags.template,
        template_file=flags.template_file,
        labels=flags.labels,
        labels_file=flags.labels_file,
        label_prefix=flags.label_prefix,
        label_sentence=flags.label_sentence,
    )
    again = suggestions.calibrate_again_command(flags, question, names, flags.error_rate)
    output.say(
        f"Of the methods that do not raise it, {'+'.join(names)} is the best: "
        f"{_in_words(best.quality)}. Use it with:\n"
        f"{again}"
    )


def _best(row: Row, gold: int) -> tuple[float, bool]:
    """Return the probability of the likeliest label, and whether it is correct."""
    shares = softmax(row)
    return max(shares), shares.index(max(shares)) == gold


def _yes(row: Row, gold: int) -> tuple[float, bool]:
    return softmax(row)[0], gold == 0


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


def _counts(answers: Answers, fitted: Task) -> list[str]:
    """Return lines with how often each label is chosen, before and after."""
    lines = []
    for name, variant in (("raw", answers.task), (fitted.level, fitted)):
        chosen = [label for decision in answers.decisions(variant) for label in decision.labels]
        counts = ", ".join(f"{label} {chosen.count(label)}" for label in answers.task.labels)
        lines.append(f"{name}: {counts}")
    return lines
