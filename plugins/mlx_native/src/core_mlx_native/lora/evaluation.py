"""How well a model classifies texts whose labels are known: figures for the terminal and for JSON.

Through `core.Task` and `core.agreement`, as any backend would be measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.agreement import Agreement
from core.agreement.gaps import error_text
from core.errors import CalibrationError
from core.protocols import TextModel
from core.tasks.task import Task
from core.training import TrainConfig, TrainingExample


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Reports of `core.agreement` on the same texts, ``raw`` and, with a fitted temperature,
    ``calibrated``; ``nll`` is the mean ``-log p(gold)`` of each in nats.
    """

    raw: Mapping[str, Any]
    calibrated: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """All figures, for JSON."""
        return {"raw": dict(self.raw), "calibrated": self.calibrated and dict(self.calibrated)}

    def lines(self, name: str) -> list[str]:
        """The figures as plain lines: in all, of each label, and what was taken for what."""
        shown = [f"{name}: {_summary(self.raw)}"]
        if self.calibrated:
            told = f"{_held(self.calibrated)} (before: {_held(self.raw)})"
            shown.append(f"{name}, with a temperature fitted on validation: {told}")
        width = max(map(len, self.raw["labels"]), default=5)
        shown.append(f"{'label':<{width}}  precision  recall     F1  rows")
        for label, each in self.raw["labels"].items():
            figures = f"{each['precision']:9.3f}  {each['recall']:6.3f}  {each['f1']:5.3f}"
            shown.append(f"{label:<{width}}  {figures}  {each['support']:4d}")
        return [*shown, *_confusion(self.raw, width)]


def task_of(config: TrainConfig, labels: Sequence[str]) -> Task:
    """What a training's labels are asked by."""
    return Task(config.template, tuple(labels), label_prefix=config.label_prefix)


def evaluate(
    model: TextModel,
    task: Task,
    examples: Sequence[TrainingExample],
    validation: Sequence[TrainingExample] = (),
) -> Evaluation:
    """Classify held-out examples, which all have labels.

    With ``validation`` a temperature is fitted to it, and to nothing that is judged; where that is
    not possible, there are no calibrated figures.
    """
    raw = _report(model, task, examples)
    if not validation:
        return Evaluation(raw)
    try:
        fitted = task.fit(model, _texts(validation), _gold(validation))
    except CalibrationError:
        return Evaluation(raw)
    return Evaluation(raw, _report(model, fitted, examples))


def _report(model: TextModel, task: Task, examples: Sequence[TrainingExample]) -> dict[str, Any]:
    agreement, losses = Agreement(), []
    decisions = task.classify(model, _texts(examples))
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
        return f"none of {report['rows']} texts was answered"
    low, high = report["accuracy_interval"]
    return (
        f"{report['right']} of {report['rows']} right, {report['accuracy']:.1%} "
        f"(95 %: {low:.1%} to {high:.1%}), macro F1 {report['macro_f1']:.3f}, {_held(report)}"
    )


def _held(report: Mapping[str, Any]) -> str:
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
