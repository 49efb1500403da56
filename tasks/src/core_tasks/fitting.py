"""Fitting of a task's calibration: its texts are run, and the resulting rows are fitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from core import validate
from core.errors import CalibrationError, EmptyPromptError, PromptTooLongError, TaskError
from core.kit.support import compares_sentences
from core.options import GenerateConfig
from core.protocols import TextModel
from core_tasks.asking import Progress, answers, classified
from core_tasks.calibration import (
    BATCH_STRENGTH,
    CONTENT_FREE,
    CONTENT_FREE_STRENGTH,
    Adjustment,
    Calibration,
    Level,
    batch_prior,
    content_free_prior,
    mean_prior,
    naming,
    pmi_prior,
)
from core_tasks.template import Template

if TYPE_CHECKING:
    from core_tasks.task import Gold, Task

MOST_NAMED = 20
"""Maximum number of labels named to the model, to check that the prompt responds to its text."""
Row = list[float]
Rows = dict[str, list[Row | None]]
"""The answers' scores by question and text; None for a skipped text."""


def prior(
    task: Task,
    model: TextModel,
    texts: Iterable[str] | None,
    method: str,
    strength: float | None,
    domain: str | None,
    config: GenerateConfig | None,
    progress: Progress | None = None,
) -> Calibration | None:
    """Return the calibration of level L0, or None to stay raw; see `core_tasks.Task.fit_prior`."""
    validate.one_of("method", method, ("batch", "content-free", "mean", "pmi"))
    check_prior(model, method)
    plain = replace(task, calibration=None)
    named: list[Row | None] = []
    if method in ("batch", "mean"):
        if texts is None:
            raise CalibrationError(f"A {method} prior requires texts like the ones to classify.")
        rows = ask_rows(plain, model, plain.prompts(texts), config, progress)
    elif texts is not None:
        raise CalibrationError(
            f"A {method} prior does not use texts. Omit them, or pass method='batch' or 'mean'."
        )
    elif method == "pmi":
        rows = ask_rows(plain, model, domain_prompts(task, domain), config, progress)
    else:
        rows, named = without_content(plain, model, config, progress)

    # A question's prior is fitted on the texts with an answer.
    fitted = {
        question: prior_of([row for row in own_rows if row is not None], method, strength, named)
        for question, own_rows in rows.items()
    }
    if not any(adjustment.prior for adjustment in fitted.values()):
        return None
    return calibration_of(plain, model, "L0", method, fitted, rows)


def check_prior(model: TextModel, method: str) -> None:
    """Raise `TaskError` for a prior that does not exist with label sentences."""
    if method == "pmi" and compares_sentences(model):
        raise TaskError(
            "A pmi prior is what follows a prompt without its text, but this model compares a text "
            "with label sentences. Use the prior 'mean', from texts."
        )


def without_content(
    task: Task,
    model: TextModel,
    config: GenerateConfig | None = None,
    progress: Progress | None = None,
) -> tuple[Rows, list[Row | None]]:
    """Return raw rows for neutral texts, and for texts that name the labels."""
    names = texts_with_names(task)
    prompts = task.prompts([*CONTENT_FREE, *names.values()])
    rows = ask_rows(task, model, prompts, config, progress)
    free: Rows = {question: own_rows[: len(CONTENT_FREE)] for question, own_rows in rows.items()}
    return free, named_rows(task, names, rows[""][len(CONTENT_FREE) :]) if names else []


def count_without_content(task: Task) -> int:
    """Return the number of prompts of `without_content`."""
    return (len(CONTENT_FREE) + len(texts_with_names(task))) * len(task.questions)


def texts_with_names(task: Task) -> dict[int, str]:
    """Return texts that each name one label, by the label's index; none for the mode "many".

    At most `MOST_NAMED` labels, the first in alphabetical order: two recognised labels are enough,
    and a text for each label would need labels x labels probabilities.
    """
    words = [] if task.mode == "many" else [alternatives[0] for alternatives in task.words.values()]
    places = sorted(sorted(range(len(words)), key=words.__getitem__)[:MOST_NAMED])
    return dict(zip(places, naming([words[place] for place in places]), strict=True))


def named_rows(
    task: Task, names: Mapping[int, str], rows: Sequence[Row | None]
) -> list[Row | None]:
    """Return the rows of `texts_with_names`, one for each label; None for labels without a text."""
    by_place = dict(zip(names, rows, strict=True))
    return [by_place.get(place) for place in range(len(task.labels))]


def ask_rows(
    task: Task,
    model: TextModel,
    prompts: list[str],
    config: GenerateConfig | None,
    progress: Progress | None = None,
) -> Rows:
    """Return the raw rows of a task's prompts.

    Raises any error of a text except for empty and too long texts.
    """
    results = classified(model, prompts, task.request(model, config), progress)
    decided = answers(model, task.words, task.label_prefix, prompts, results)
    rows: Rows = {question: [] for question in task.questions}
    for place, answer in enumerate(decided):
        left_out = isinstance(answer.error, EmptyPromptError | PromptTooLongError)
        if answer.error is not None and not left_out:
            raise answer.error
        row = None if left_out else [*answer.scores.values()]
        rows[task.questions[place % len(task.questions)]].append(row)
    return rows


def prior_of(
    rows: Sequence[Sequence[float]],
    method: str,
    strength: float | None = None,
    named: Sequence[Sequence[float] | None] = (),
) -> Adjustment:
    """Return the prior of a method, from its rows. All interfaces use this function.

    ``named`` are the rows for named labels from `without_content`, for a content-free prior.
    """
    if method == "batch":
        return batch_prior(rows, BATCH_STRENGTH if strength is None else strength)
    if method == "mean":
        return mean_prior(rows, 1.0 if strength is None else strength)
    if method == "content-free":
        part = CONTENT_FREE_STRENGTH if strength is None else strength
        return content_free_prior(rows, part, named)
    if not rows:
        raise CalibrationError("The domain prompt is empty or too long. Pass another domain.")
    return pmi_prior(rows[0], 1.0 if strength is None else strength)


def domain_prompts(task: Task, domain: str | None) -> list[str]:
    """Return the prompt without a text; in mode "many" one for each label."""
    fillings = [{"label": label} for label in task.labels] if task.mode == "many" else [{}]
    if domain is not None:
        return [Template(domain).filled({"text": "", **values}) for values in fillings]
    template = Template(task.template).after("text")
    if not template.source.strip():
        raise TaskError(
            "The template ends with {text}, so it has no prompt without a text, which a pmi prior "
            "requires. End it with words that lead to a label, such as '{text} This news is "
            "about', or use another prior (in Python, also a domain)."
        )
    return [template.filled(values) for values in fillings]


def places_of(task: Task, gold: Gold) -> dict[str, list[int]]:
    """Return the index of the gold answer, by question and text."""
    if task.mode != "many":
        return {"": [_place(task, number, label) for number, label in enumerate(gold)]}
    for number, labels in enumerate(gold):
        if isinstance(labels, str):
            raise CalibrationError(
                f"Text {number} has the gold label {labels!r:.40}: mode 'many' requires a "
                "collection of gold labels for each text."
            )
        for label in labels:
            _place(task, number, label)
    return {
        label: [0 if label in gold_labels else 1 for gold_labels in gold] for label in task.labels
    }


def _place(task: Task, number: int, label: object) -> int:
    if not isinstance(label, str) or label not in task.labels:
        raise CalibrationError(
            f"Text {number} has the gold label {label!r:.40}, which is not one of the task's: "
            f"{', '.join(map(repr, task.labels))}."
        )
    return task.labels.index(label)


def has_prior(calibration: Calibration) -> bool:
    """Return whether a calibration subtracts a prior."""
    return any(adjustment.prior for adjustment in calibration.adjustments.values())


def base_of(calibration: Calibration, question: str, labels: Sequence[str]) -> Adjustment:
    """Return the prior of a question, its numbers in the order of these labels."""
    prior = calibration.adjustments[question].prior
    values = dict(zip(calibration.labels, prior, strict=True)) if prior else {}
    return Adjustment(prior=tuple(values[label] for label in labels if values))


def calibration_of(
    task: Task,
    model: TextModel,
    level: Level,
    method: str,
    fitted: dict[str, Adjustment],
    rows: Rows,
) -> Calibration:
    """Return these adjustments as the calibration of a task with a model."""
    number = max(sum(row is not None for row in own_rows) for own_rows in rows.values())
    return Calibration(level, method, task.key(model), tuple(task.words), fitted, number)
