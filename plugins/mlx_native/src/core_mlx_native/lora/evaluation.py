"""Metrics of a model on examples, for the terminal and for JSON.

Labelled examples are classified with `core_tasks.Task` and `core_tasks.agreement`, as for any
backend; others are scored by the tokens that training would learn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from core.errors import CalibrationError
from core.protocols import TextModel
from core.training import TrainConfig, TrainingExample
from core_mlx_native.train.rows import TokenRow
from core_tasks.agreement import Agreement
from core_tasks.agreement.gaps import error_text
from core_tasks.asking import Progress
from core_tasks.task import Task

if TYPE_CHECKING:
    from core_mlx_native.model import MlxModel


@dataclass(frozen=True, slots=True)
class AdapterEvaluation:
    """Reports of `core_tasks.agreement` on the same texts.

    ``raw`` is uncalibrated, ``calibrated`` has a fitted temperature; ``nll`` of each is the mean
    ``-log p(gold)`` in nats.
    """

    raw: Mapping[str, Any]
    calibrated: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics, for JSON."""
        return {"raw": dict(self.raw), "calibrated": self.calibrated and dict(self.calibrated)}

    def lines(self, name: str) -> list[str]:
        """Return the metrics as text lines: overall, per label, and the confusion matrix."""
        shown = [f"{name}: {_summary(self.raw)}"]
        if self.calibrated:
            calibration = f"{_calibration(self.calibrated)} (before: {_calibration(self.raw)})"
            shown.append(f"{name}, temperature fitted on validation: {calibration}")
        width = max(map(len, self.raw["labels"]), default=5)
        shown.append(f"{'label':<{width}}  precision  recall     F1  rows")
        for label, metrics in self.raw["labels"].items():
            figures = f"{metrics['precision']:9.3f}  {metrics['recall']:6.3f}  {metrics['f1']:5.3f}"
            shown.append(f"{label:<{width}}  {figures}  {metrics['support']:4d}")
        return [*shown, *_confusion(self.raw, width)]


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """The mean loss over ``tokens`` learned tokens."""

    loss: float
    tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics, for JSON; ``perplexity`` is ``exp(loss)``."""
        return {"loss": self.loss, "perplexity": math.exp(self.loss), "tokens": self.tokens}

    def lines(self, name: str) -> list[str]:
        """Return the metrics as a text line."""
        values = f"loss {self.loss:.4f}, perplexity {math.exp(self.loss):.3f}"
        return [f"{name}: {values}, over {self.tokens} tokens"]


def task_of(config: TrainConfig, labels: Sequence[str]) -> Task:
    """Return the classification task of a training's labels."""
    return Task(config.template, tuple(labels), label_prefix=config.label_prefix)


def evaluate(
    model: TextModel,
    task: Task,
    examples: Sequence[TrainingExample],
    validation: Sequence[TrainingExample] = (),
    progress: Progress | None = None,
) -> AdapterEvaluation:
    """Classify held-out examples, which all have labels.

    With ``validation`` a temperature is fitted to it, never to the evaluated examples; if that
    fails, the calibrated metrics are omitted. ``progress`` is that of `Task.classify`.
    """
    raw = _report(model, task, examples, progress)
    if not validation:
        return AdapterEvaluation(raw)
    try:
        fitted = task.fit(model, _texts(validation), _gold(validation), progress=progress)
    except CalibrationError:
        return AdapterEvaluation(raw)
    return AdapterEvaluation(raw, _report(model, fitted, examples, progress))


def token_loss(
    model: MlxModel, examples: Sequence[TrainingExample], config: TrainConfig
) -> TokenLoss:
    """Score the tokens that training would learn from examples. Raises like training."""
    pairs = [pair for row in model.training_rows(examples, config) for pair in _pairs(row)]
    scores = model.score_tokens([head for head, _ in pairs], [tail for _, tail in pairs])
    for score in scores:
        if score.error is not None:
            raise score.error
    tokens = sum(len(tail) for _, tail in pairs)
    return TokenLoss(-math.fsum(score.logprob for score in scores) / tokens, tokens)


def _report(
    model: TextModel,
    task: Task,
    examples: Sequence[TrainingExample],
    progress: Progress | None = None,
) -> dict[str, Any]:
    agreement, losses = Agreement(), []
    decisions = task.classify(model, _texts(examples), progress=progress)
    for gold, decision in zip(_gold(examples), decisions, strict=True):
        if decision.error is not None or decision.probabilities is None:
            agreement.add(gold, None)
            continue
        agreement.add(gold, decision.label, probabilities=decision.probabilities)
        likely = decision.probabilities.get(gold, 0.0)
        losses.append(-math.log(likely) if likely > 0 else math.inf)
    nll = math.fsum(losses) / len(losses) if losses else None
    return {**agreement.to_dict(), "nll": nll}


def _summary(report: Mapping[str, Any]) -> str:
    if report["accuracy"] is None:
        return f"no predictions for the {report['rows']} texts"
    low, high = report["accuracy_interval"]
    return (
        f"{report['right']} of {report['rows']} correct, {report['accuracy']:.1%} (95% interval "
        f"{low:.1%} to {high:.1%}), macro F1 {report['macro_f1']:.3f}, {_calibration(report)}"
    )


def _calibration(report: Mapping[str, Any]) -> str:
    error = error_text(report["calibration_error"], report["calibration_error_interval"])
    return f"{error}, Brier {report['brier']:.3f}, loss {report['nll']:.3f}"


def _confusion(report: Mapping[str, Any], width: int) -> list[str]:
    labels = [*report["labels"]]
    head = "  ".join(f"{label:>{max(4, len(label))}}" for label in labels)
    rows = [f"{'gold':<{width}}  {head}"]
    for gold in labels:
        counts = report["confusion"].get(gold, {})
        cells = "  ".join(f"{counts.get(label, 0):>{max(4, len(label))}}" for label in labels)
        rows.append(f"{gold:<{width}}  {cells}")
    return rows


def _texts(examples: Sequence[TrainingExample]) -> list[str]:
    return [example.text for example in examples]


def _gold(examples: Sequence[TrainingExample]) -> list[str]:
    return [example.label or "" for example in examples]


def _pairs(row: TokenRow) -> Iterator[tuple[list[int], list[int]]]:
    """Yield each run of learned tokens with all tokens before it."""
    for _, run in groupby(enumerate(row.learned), key=lambda item: item[1] - item[0]):
        places = [place for _, place in run]
        yield [*row.ids[: places[0]]], [row.ids[place] for place in places]
