"""Calibration of one task on rows: each prompt runs once, and every fit is made from its answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from core.errors import CalibrationError
from core.kit.support import checked_prompts, compares_sentences
from core.options import GenerateConfig
from core.protocols import TextModel
from core.types import ClassifyResult
from core_tasks.asking import Progress, classified, part_of
from core_tasks.calibration import Adjustment, Calibration
from core_tasks.decision import Decision
from core_tasks.fitting import (
    ask_rows,
    base_of,
    calibration_of,
    check_prior,
    count_without_content,
    domain_prompts,
    has_prior,
    places_of,
    without_content,
)
from core_tasks.folds import folds_of
from core_tasks.task import Gold, Task
from core_tasks.tuning.accepting import check_errors
from core_tasks.tuning.judging import out_of_fold
from core_tasks.tuning.methods import OF_ROWS, Method, Row, Said


@dataclass(frozen=True, slots=True)
class Question:
    """One question about the rows that did not fail: the raw answers, and the gold answers.

    ``gold`` are their indices, ``folds`` the folds of the rows; both are empty without gold labels.
    """

    answers: Said
    gold: Sequence[int]
    folds: Sequence[int]

    def held_out(self, method: Method) -> list[Row]:
        """Return the rows, each adjusted by a fit to the other folds."""
        return out_of_fold((self.answers, method), self.gold, self.folds)


@dataclass(frozen=True, slots=True)
class Answers:
    """A model's raw answers to a task's questions, from which each method is fitted.

    ``task`` is uncalibrated; ``below`` names the prior that it had, which is applied first.
    """

    task: Task
    model: TextModel
    questions: Mapping[str, Question]
    below: str
    prompts: Sequence[str]
    results: Sequence[ClassifyResult]

    def fitted(self, method: Method) -> Task:
        """Return the task calibrated with a method, on all rows; raw if it subtracts nothing.

        Raises `CalibrationError` if the rows cannot be fitted.
        """
        answers_by_name = {name: question.answers for name, question in self.questions.items()}
        adjustments = {
            name: method.adjustment(answers, range(len(answers.rows)), self.questions[name].gold)
            for name, answers in answers_by_name.items()
        }
        subtracts = any(adjustment.prior for adjustment in adjustments.values())
        prior = method.prior or self.below if subtracts else ""
        name = "+".join(filter(None, (prior, method.fitted)))
        if not name:
            return self.task

        # The rows that the calibration was fitted on.
        rows: dict[str, list[list[float] | None]] = {
            name: [[*row] for row in method.source(answers)]
            for name, answers in answers_by_name.items()
        }
        fitted = calibration_of(self.task, self.model, method.level, name, adjustments, rows)
        return replace(self.task, calibration=fitted)

    def decisions(self, task: Task) -> Iterator[Decision]:
        """Return the decisions of a calibration of the task, without a run of the model."""
        return task.decisions(self.model, self.prompts, self.results)


def answers_of(
    model: TextModel,
    task: Task,
    texts: Iterable[str],
    gold: Gold | None = None,
    priors: Collection[str] = (),
    *,
    config: GenerateConfig | None = None,
    progress: Progress | None = None,
) -> Answers:
    """Run a task's prompts, and those without a text that ``priors`` require, each once.

    Texts that are empty or too long are skipped. Raises any other error of a text, `TaskError` for
    a prior that the model cannot have, and `CalibrationError` for a wrong gold label.
    """
    for prior in priors:
        check_prior(model, prior)
    listed = checked_prompts("calibrate", texts)
    if gold is not None and len(listed) != len(gold):
        raise CalibrationError(
            f"{len(listed)} texts cannot be fitted to {len(gold)} gold labels. Pass one per text."
        )
    places, before = None if gold is None else places_of(task, gold), task.calibration
    if before is not None:
        before.check(task.key(model))
    plain = replace(task, calibration=None)

    prompts = plain.prompts(listed)
    uses_free = "content-free" in priors
    total = len(prompts) + (count_without_content(plain) if uses_free else 0)
    counted = part_of(progress, 0, total)
    results = classified(model, prompts, plain.request(model, config), counted)
    decisions = [*plain.decisions(model, prompts, results)]
    check_errors(decisions)
    sound = [row for row, decision in enumerate(decisions) if decision.error is None]

    # The rows of each question, and those of its prompt without a text.
    counted = part_of(progress, len(prompts), total)
    free, named = without_content(plain, model, config, counted) if uses_free else ({}, [])
    domain = ask_rows(plain, model, domain_prompts(plain, None), config) if "pmi" in priors else {}
    questions = {}
    for question in plain.questions:
        parts = [decisions[row].parts[question] if question else decisions[row] for row in sound]
        own = [] if places is None else [places[question][row] for row in sound]
        answers = Said(
            rows=[[*(part.scores or {}).values()] for part in parts],
            content_free=[row for row in free.get(question, ()) if row is not None],
            named=named,
            domain=[row for row in domain.get(question, ()) if row is not None],
            label_mass=None,
            seconds=0.0,
            base=Adjustment() if before is None else base_of(before, question, [*task.words]),
        )
        folds = folds_of([listed[row] for row in sound], own) if own else []
        questions[question] = Question(answers, own, folds)
    below = before.method.split("+")[0] if before is not None and has_prior(before) else ""
    return Answers(plain, model, questions, below, prompts, results)


def method_of(
    task: Task, model: TextModel, prior: str | None, fitted: str, strength: float | None
) -> Method:
    """Return the method with the default prior, which a task with a prior keeps."""
    if prior is None:
        own = task.calibration is not None and has_prior(task.calibration)
        prior = "" if own and fitted else "mean" if compares_sentences(model) else "content-free"
    return Method(prior, fitted, strength)


def calibrated(
    task: Task,
    model: TextModel,
    texts: Iterable[str],
    gold: Gold | None,
    method: Method,
    config: GenerateConfig | None,
    progress: Progress | None,
) -> Calibration | None:
    """Return the calibration of a task with a method; see `core_tasks.Task.calibrate`."""
    own = texts if gold is not None or method.prior in OF_ROWS else ()
    answers = answers_of(
        *(model, task, own, gold, [method.prior] if method.prior else []),
        config=config,
        progress=progress,
    )
    return answers.fitted(method).calibration
