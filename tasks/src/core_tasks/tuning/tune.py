"""`tune`: each candidate runs once, every level is computed from that, and one is chosen."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import fmean

from core.errors import CalibrationError, TaskError
from core.kit.labels import softmax
from core.kit.support import checked_prompts, compares_sentences
from core.options import LABEL_SENTENCE, GenerateConfig
from core.protocols import TextModel
from core_tasks.agreement.measures import wilson
from core_tasks.asking import Progress, part_of
from core_tasks.calibration import Level, quality
from core_tasks.fitting import (
    calibration_of,
    count_without_content,
    domain_prompts,
    places_of,
    without_content,
)
from core_tasks.folds import FOLDS, folds_of
from core_tasks.task import Task
from core_tasks.tuning.accepting import check_enough, check_errors, threshold_of
from core_tasks.tuning.judging import (
    Candidate,
    coverage,
    merit,
    nested,
    out_of_fold,
)
from core_tasks.tuning.methods import LEVELS, Method, Row, Said, methods_of
from core_tasks.tuning.trial import Expectation, Trial, Tuning

SENTENCES = (
    LABEL_SENTENCE,
    "{label}",
    "The topic is {label}.",
    "This is a {label} text.",
    "A message about {label}.",
)
"""Label sentences to try with a model that compares them with the text."""

_FEWEST = 2 * FOLDS  # rows: with fewer, a fold may be empty


def tune(
    model: TextModel,
    tasks: Iterable[Task],
    texts: Iterable[str],
    gold: Sequence[str] | None = None,
    *,
    levels: Collection[Level] | None = None,
    error_rate: float | None = None,
    config: GenerateConfig | None = None,
    progress: Progress | None = None,
) -> Tuning:
    """Try candidate tasks at several levels on texts, and choose one.

    ``tasks`` have the same labels, and different templates, words or, for a model of label
    sentences, label sentences; their calibrations are ignored. With ``gold``, the label of each
    text, the most accurate trial is chosen, and of several the one with the lowest negative
    log-likelihood, on rows that it was not fitted on. Without, it is the one with the best ranks in
    stability, label mass and margin together, which are weak signs. ``levels``: "raw", "L0" and,
    with gold labels, "L1"; all by default. ``error_rate`` gives the best task a threshold, at 95 %
    confidence (`core_tasks.calibration.threshold_for`). One half of the texts is reserved for it: a
    threshold from the rows that chose the task would not keep the error rate.
    ``progress(done, total)`` is called with counts of prompts, while they run; see `Task.classify`.

    Texts that are empty or too long for a candidate are skipped. Raises `TaskError` for candidates
    that cannot be compared, `CalibrationError` for fewer than ten texts, gold labels that are not
    labels of the tasks, a label without a text, and if no threshold keeps the error rate.
    """
    candidates, listed = _checked(tasks), checked_prompts("tune", texts)
    places = None if gold is None else _places(candidates[0], listed, gold)
    if error_rate is None:
        return _chosen(model, candidates, listed, places, levels, config, progress)
    if places is None:
        raise CalibrationError("An error rate requires gold labels. Pass some.")

    # One half chooses and fits, the other finds the threshold; equal texts are in one half.
    halves = folds_of(listed, places, 2)
    some, aside = ([row for row, half in enumerate(halves) if half == own] for own in (0, 1))
    check_enough(len(aside), error_rate)
    own_texts, own_places = [listed[n] for n in some], [places[n] for n in some]
    tuning = _chosen(model, candidates, own_texts, own_places, levels, config, progress)
    held_out, right = [listed[n] for n in aside], [places[n] for n in aside]
    threshold, left_out = threshold_of(
        tuning.best, model, held_out, right, error_rate, config, progress
    )
    return replace(
        tuning,
        best=replace(tuning.best, threshold=threshold.value),
        left_out=tuning.left_out + left_out,
        threshold=threshold,
    )


def _chosen(
    model: TextModel,
    candidates: Sequence[Task],
    listed: Sequence[str],
    places: Sequence[int] | None,
    levels: Collection[Level] | None,
    config: GenerateConfig | None,
    progress: Progress | None,
) -> Tuning:
    """Return all trials on these texts, and the best task, fitted, without a threshold."""
    with_gold = places is not None
    sentences = compares_sentences(model)
    methods = methods_of(levels or LEVELS[: 3 if with_gold else 2], with_gold, sentences)

    # Every prompt runs once. A text that fails for one candidate is skipped for all.
    priors = {method.prior for method in methods}
    free = "content-free" in priors
    counts = [len(listed) + count_without_content(task) * free for task in candidates]
    before = [0, *accumulate(counts)]
    read = [
        _asked(model, task, listed, priors, config, part_of(progress, before[n], before[-1]))
        for n, task in enumerate(candidates)
    ]
    usable = [row for row in range(len(listed)) if all(row in rows for _, rows in read)]
    if len(usable) < _FEWEST:
        raise CalibrationError(
            f"{len(usable)} texts are usable, but a choice requires at least {_FEWEST}. Add texts."
        )
    heard = [replace(answers, rows=[rows[row] for row in usable]) for answers, rows in read]
    right = None if places is None else [places[row] for row in usable]
    if right is not None:
        _each_label(candidates[0].labels, right)
    folds = folds_of([listed[row] for row in usable], right)

    pairs = [
        (task, answers, method)
        for task, answers in zip(candidates, heard, strict=True)
        for method in methods
        if method.possible(answers)
    ]
    if not pairs:
        raise CalibrationError(
            "With no candidate's prompt the model recognises two labels that a text names, so no "
            "prior can be subtracted. Pass other templates, or add the level 'raw'."
        )
    # Every metric is for rows that the trial was not fitted on.
    adjusted = [out_of_fold((answers, method), right or [], folds) for _, answers, method in pairs]
    trials = _trials(pairs, adjusted, right)
    order = _order(trials, adjusted, right)
    task, answers, method = pairs[order[0]]
    best = _fitted(task, model, answers, method, right or [])
    expected = None if right is None else _expected([(s, m) for _, s, m in pairs], right, folds)
    ranked = tuple(trials[place] for place in order)
    return Tuning(ranked, best, expected, len(usable), len(listed) - len(usable))


# ----------------------------------------------------------------------- what is asked


def _checked(tasks: Iterable[Task]) -> list[Task]:
    candidates = [replace(task, calibration=None, threshold=None) for task in tasks]
    if not candidates:
        raise TaskError("tasks is empty. Pass at least one candidate.")

    first = candidates[0]
    for place, task in enumerate(candidates):
        if task.mode == "many":
            raise TaskError("Tuning does not support mode='many'. Use mode='one'.")
        if (sorted(task.labels), task.mode) != (sorted(first.labels), first.mode):
            raise TaskError(
                f"Candidate {place} has the labels {[*task.labels]!r:.80}, but the first one has "
                f"{[*first.labels]!r:.80}. Use the same labels for all."
            )
        if task in candidates[:place]:
            raise TaskError(f"Candidate {place} is a duplicate: {task.template!r:.60}.")
    return [_in_order(task, first.labels) for task in candidates]


def _in_order(task: Task, labels: tuple[str, ...]) -> Task:
    words = {label: task.words[label] for label in labels}
    return replace(task, labels=labels, words=words)


def _places(task: Task, texts: Sequence[str], gold: Sequence[str]) -> list[int]:
    if len(texts) != len(gold):
        raise CalibrationError(f"{len(texts)} texts have {len(gold)} gold labels. Pass one each.")
    return places_of(task, gold)[""]


def _each_label(labels: Sequence[str], right: Sequence[int]) -> None:
    missing = [label for place, label in enumerate(labels) if place not in right]
    if missing:
        raise CalibrationError(
            f"No text has the gold label {missing[0]!r}. Add one, or remove the label."
        )


def _asked(
    model: TextModel,
    task: Task,
    texts: Sequence[str],
    priors: Collection[str],
    config: GenerateConfig | None,
    progress: Progress | None = None,
) -> tuple[Said, dict[int, Row]]:
    """Return the model's results for a candidate, and its rows by the number of the text.

    Prompts without a text only run for the ``priors`` that need them.
    """
    start = time.perf_counter()
    decisions = task.classify(model, texts, config, allow_blank=True, progress=progress)
    seconds = time.perf_counter() - start
    check_errors(decisions)

    # Rows by index, without failed ones.
    rows: dict[int, Row] = {
        place: [*decision.scores.values()]
        for place, decision in enumerate(decisions)
        if decision.scores is not None
    }
    masses = [decided.label_mass for decided in decisions if decided.label_mass is not None]

    # The prior of the prompt without a text.
    more = part_of(progress, len(texts), 0)
    uses_free = "content-free" in priors
    free, named = without_content(task, model, config, more) if uses_free else ({}, [])
    answers = Said(
        rows=[],
        content_free=[row for row in free.get("", ()) if row is not None],
        named=named,
        domain=_domain(model, task, config) if "pmi" in priors else [],
        label_mass=fmean(masses) if masses else None,
        seconds=seconds,
    )
    return answers, rows


def _domain(model: TextModel, task: Task, config: GenerateConfig | None) -> list[Row]:
    """Return the row of the prompt without its text; empty if it has no such prompt."""
    try:
        prompts = domain_prompts(task, None)
    except TaskError:
        return []
    bare = replace(task, template="{text}")
    decisions = bare.classify(model, prompts, config)
    return [[*decision.scores.values()] for decision in decisions if decision.scores is not None]


# ----------------------------------------------------------------------- what is found


def _trials(
    pairs: Sequence[tuple[Task, Said, Method]],
    adjusted: Sequence[Sequence[Row]],
    right: Sequence[int] | None,
) -> list[Trial]:
    shares = [[softmax(row) for row in rows] for rows in adjusted]
    chosen = [[row_shares.index(max(row_shares)) for row_shares in rows] for rows in shares]

    trials = []
    for place, (task, answers, method) in enumerate(pairs):
        leads = (sorted(row_shares)[-2:] for row_shares in shares[place])
        trial = Trial(
            task=task,
            level=method.level,
            method=method.name,
            label_mass=answers.label_mass,
            margin=fmean(first - second for second, first in leads),
            stability=_stability(chosen, place),
            rows_per_second=len(answers.rows) / answers.seconds if answers.seconds else 0.0,
        )
        trials.append(trial if right is None else _judged(trial, adjusted[place], right))
    return trials


def _judged(trial: Trial, rows: Sequence[Row], right: Sequence[int]) -> Trial:
    measured = quality(rows, right)
    return replace(
        trial,
        accuracy=measured.accuracy,
        interval=wilson(round(measured.accuracy * len(rows)), len(rows)),
        calibration_error=measured.calibration_error,
        brier=measured.brier,
        nll=measured.nll,
        coverage=coverage(rows, right),
    )


def _stability(chosen: Sequence[Sequence[int]], place: int) -> float:
    """Return the share of the texts on which a trial agrees with most of the others.

    It is 1 for a single trial. If two labels are tied among the others, either counts.
    """
    others = [labels for number, labels in enumerate(chosen) if number != place]
    if not others:
        return 1.0
    agreed = 0
    for row, label in enumerate(chosen[place]):
        votes = Counter(labels[row] for labels in others)
        agreed += votes[label] == max(votes.values())
    return agreed / len(chosen[place])


def _order(
    trials: Sequence[Trial], adjusted: Sequence[Sequence[Row]], right: Sequence[int] | None
) -> list[int]:
    """Return the trials' numbers, the best first; equal ones in the given order."""
    numbers = range(len(trials))
    if right is not None:
        merits = [merit(rows, right) for rows in adjusted]
        return sorted(numbers, key=lambda place: merits[place], reverse=True)

    def rank(value: float, values: Sequence[float]) -> int:
        return sum(other > value for other in values)

    signs = [[t.stability for t in trials], [t.label_mass or 0.0 for t in trials]]
    signs.append([t.margin for t in trials])
    return sorted(numbers, key=lambda place: sum(rank(sign[place], sign) for sign in signs))


def _expected(
    candidates: Sequence[Candidate], right: Sequence[int], folds: Sequence[int]
) -> Expectation:
    rows = nested(candidates, right, folds)
    measured = quality(rows, right)
    interval = wilson(round(measured.accuracy * len(rows)), len(rows))
    assert interval is not None  # there are rows
    return Expectation(
        measured.accuracy, interval, measured.calibration_error, measured.brier, measured.nll
    )


def _fitted(
    task: Task, model: TextModel, answers: Said, method: Method, right: Sequence[int]
) -> Task:
    """Return the task with its calibration, fitted on all rows."""
    if method.level == "raw":
        return task
    adjustment = method.adjustment(answers, range(len(answers.rows)), right)
    rows: dict[str, list[list[float] | None]] = {"": [[*row] for row in answers.rows]}
    fitted = calibration_of(task, model, method.level, method.name, {"": adjustment}, rows)
    return replace(task, calibration=fitted)
