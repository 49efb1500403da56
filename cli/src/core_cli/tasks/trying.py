"""Tries the candidate prompts of ``tune`` with one model, and a classifier head beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from core.errors import PromptTooLongError
from core.protocols import Capability
from core_cli import output
from core_cli.progress import Work
from core_cli.rows.shortening import longest_prompt, shortened
from core_cli.tasks.candidates import Candidates, TuneFlags
from core_cli.tasks.gold_rows import Texts
from core_tasks.agreement.measures import wilson
from core_tasks.calibration import quality
from core_tasks.heads import installed_learner, learner
from core_tasks.words import flat

if TYPE_CHECKING:
    from core.protocols import TextModel
    from core_tasks.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Tried:
    """A model's result: its trials and the quality of a head; its backend and path."""

    tuning: Tuning
    head: Mapping[str, Any] | None
    backend: str
    location: str


def try_model(
    flags: TuneFlags,
    candidates: Candidates,
    rows: Texts,
    levels: list[Any] | None,
    work: Work,
    compared: bool = False,
) -> Tried:
    """Load the model, try the candidates of its kind, and close it; ``work`` shows the progress.

    Candidates of the other kind are refused, unless the model is ``compared`` with others.
    """
    from core_cli.loading import explain, load
    from core_tasks.tuning import tune

    loaded = load(flags.need_model(), flags.load_config(), Capability.LABELS)
    with loaded.model as model:
        if flags.verbose:
            explain(loaded)
        if not compared:
            candidates.check(model)
        tasks = candidates.for_model(model)
        prompts = [partial(longest_prompt, task) for task in tasks]
        words = [word for task in tasks for word in flat(task.words)]
        texts = shortened(loaded, rows.texts, flags.truncate, prompts, words)
        rows = replace(rows, texts=texts)
        tuning = tune(
            model,
            tasks,
            rows.texts,
            rows.gold,
            levels=levels,
            error_rate=flags.error_rate,
            progress=work,
        )
        head = _head(model, rows, candidates.labels, "L2" in flags.levels, flags, work)
    return Tried(tuning, head, loaded.backend.name, loaded.location)


def _head(
    model: TextModel,
    rows: Texts,
    labels: Sequence[str],
    wanted: bool,
    flags: TuneFlags,
    work: Work,
) -> dict[str, float | list[float]] | None:
    """Return the quality of a classifier head on held-out rows, chosen in each fold separately.

    None if it cannot be trained and is not ``wanted`` by name.
    """
    from core.extensions import HiddenStates
    from core_tasks.folds import folds_of
    from core_tasks.tuning.judging import coverage

    learn = learner() if wanted else installed_learner()
    wants_head = wanted or (not flags.levels and isinstance(model, HiddenStates))
    if learn is None or rows.gold is None or not wants_head:
        return None
    sound = [(text, label) for text, label in zip(rows.texts, rows.gold, strict=True) if text]
    texts, gold = [text for text, _ in sound], [label for _, label in sound]
    right = [labels.index(label) for label in gold]
    try:
        folds = folds_of(texts, right)
        shares = learn.FewShot(model).out_of_fold(texts, gold, folds, labels, progress=work)
    except (learn.TrainingDataError, PromptTooLongError) as error:
        if wanted:
            raise
        output.warn(f"no classifier head was tried: {error}")
        return None
    logs = [[math.log(share) if share else -math.inf for share in row] for row in shares.tolist()]
    head_quality = quality(logs, right)
    return {
        "accuracy": head_quality.accuracy,
        "accuracy_interval": [
            *(wilson(round(head_quality.accuracy * head_quality.rows), head_quality.rows) or ())
        ],
        "calibration_error": head_quality.calibration_error,
        "brier": head_quality.brier,
        "nll": head_quality.nll,
        "coverage": coverage(logs, right),
    }
