"""Tries the candidate prompts of ``tune`` with one model, and a classifier head beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.errors import PromptTooLongError
from core.protocols import Capability
from core_cli import output
from core_cli.flags import FitFlags
from core_cli.tasks.gold_rows import Texts
from core_tasks import Task
from core_tasks.agreement.measures import wilson
from core_tasks.calibration import quality
from core_tasks.heads import installed_learner, learner

if TYPE_CHECKING:
    from core.protocols import TextModel
    from core_tasks.tuning import Tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneFlags(FitFlags):
    """Flags of ``tune``; ``model`` is the one of ``models`` that is tried."""

    models: tuple[str, ...] = ()
    output: str | None = None
    templates: tuple[str, ...] = ()
    template_list: str | None = None
    tasks: tuple[str, ...] = ()
    labels: str | None = None
    labels_file: str | None = None
    label_prefix: str | None = None
    words: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    error_rate: float | None = None
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """A model's result: its trials, the quality of a head, its backend and files' size."""

    tuning: Tuning
    head: Mapping[str, Any] | None
    backend: str
    location: str


def try_model(
    flags: TuneFlags,
    tasks: Sequence[Task],
    rows: Texts,
    levels: list[Any] | None,
    compared: bool = False,
) -> Tried:
    """Load the model, try the candidates, and close it.

    One that is ``compared`` with models of other kinds tries those that suit its own.
    """
    from core_cli.loading import explain, load
    from core_tasks.tuning import suited, tune

    loaded = load(flags.need_model(), flags.load_config(), Capability.LABELS)
    with loaded.model as model:
        if flags.verbose:
            explain(loaded)
        tuning = tune(
            model,
            suited(tasks, model) if compared else tasks,
            rows.texts,
            rows.gold,
            levels=levels,
            error_rate=flags.error_rate,
        )
        head = _head(model, rows, tasks[0].labels, "L2" in flags.levels, flags)
    return Tried(tuning, head, loaded.backend.name, loaded.location)


def _head(
    model: TextModel, rows: Texts, labels: Sequence[str], wanted: bool, flags: TuneFlags
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
        shares = learn.FewShot(model).out_of_fold(texts, gold, folds_of(texts, right), labels)
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
