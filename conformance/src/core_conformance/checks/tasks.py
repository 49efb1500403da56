"""Checks of what `core_tasks.Task` builds on labels: reliable decisions and calibrations.

Core does the arithmetic. A backend can still spoil it: by labels that count by their place, by
answers that drift with what was asked before, and by models that cannot be told from one another.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

from core.errors import CalibrationError
from core.models import fingerprint
from core.protocols import Capability, TextModel
from core_conformance.checking import ask
from core_conformance.checking.budget import passes
from core_conformance.checking.calls import must_raise
from core_conformance.checking.check import check, must, testable, well_formed
from core_conformance.checking.compare import LONGEST_LABEL
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import asked

if TYPE_CHECKING:
    from core_tasks import Decision, Task

_TEMPLATE = "{text} It is"
_MOST, _SHARE = 48, 0.3  # texts, and of the passes for one check
_ROUNDING = 1e-4  # of a probability, or its logarithm: labels' logits may be float32
_LEAST = 1e-30  # has a logarithm
_MISSING = "core_tasks is not installed: install the extra core[tasks]"


@check(
    "tasks.order",
    "A task's decision MUST NOT depend on the order of its labels, nor on that of their words",
    Capability.CLASSIFY,
    Capability.LABELS,
    broad=True,
)
def order_of_labels(subject: Subject) -> None:
    task, texts = _task(), [*ask.PLAIN[:3], ask.QUESTION]
    wanted = _decided(subject, task, texts)
    lead = max(decision.margin or 0.0 for decision in wanted)
    testable(
        lead > _ROUNDING,
        f"after each of {len(texts)} texts the probabilities of the two likeliest labels differ by "
        f"at most {lead:.1g}, and less than {_ROUNDING:g} is rounding: use a model that prefers "
        "some labels",
    )

    count = len(task.labels)
    for turn in range(count):
        labels = (*task.labels[turn:], *task.labels[:turn])[::-1]
        words = {label: task.words[label][::-1] for label in labels}
        reordered = _decided(subject, replace(task, labels=labels, words=words), texts)
        _same(subject, texts, wanted, reordered, f"with the labels as {[*labels]}")


@check(
    "tasks.prior",
    "A calibrated decision MUST depend on its text alone: neither on those beside it nor on those "
    "before it, those that a prior was fitted on included",
    Capability.CLASSIFY,
    Capability.LABELS,
    broad=True,
)
def frozen_prior(subject: Subject) -> None:
    texts = asked(max(6, min(_MOST, int(_SHARE * passes(subject)))))
    few = texts[:4]
    before = _decided(subject, _task(), few)
    apart = max(_apart(before[0], other) for other in before[1:])
    testable(
        apart > _ROUNDING,
        f"the log-probabilities of the labels after {len(few)} different texts differ by at most "
        f"{apart:.1g}, so that swapped texts would not show; less than {_ROUNDING:g} is rounding: "
        "use a model whose output depends on the prompt",
    )

    # The same row repeated: a running prior would drift towards that row.
    fitted = _fitted(subject, subject.model, texts)
    wanted = _decided(subject, fitted, few)
    many = _decided(subject, fitted, [*texts[4:], *few])[-len(few) :]
    _same(subject, few, wanted, many, f"alongside {len(texts) - 4} others")
    for _ in range(2):
        _decided(subject, fitted, [texts[-1]] * len(texts))
    _same(subject, few, wanted, _decided(subject, fitted, few), f"after {2 * len(texts)} others")
    _same(subject, few, before, _decided(subject, _task(), few), "raw, asked again after these")


@check(
    "tasks.model",
    "A calibration MUST be refused with another model before any work, and taken with its own when "
    "that is loaded again: models are hashable, equal to themselves alone, and say the same of "
    "themselves at every load",
    Capability.CLASSIFY,
    Capability.LABELS,
    broad=True,
)
def calibration_of_one_model(subject: Subject) -> None:
    texts = [*ask.PLAIN[:3], ask.QUESTION]
    fitted = _fitted(subject, subject.model, texts)
    wanted = _decided(subject, fitted, texts)
    with subject.loaded() as again:
        _same(subject, texts, wanted, _decided(subject, fitted, texts, again), "loaded again")
        fitted_again = _fitted(subject, again, texts)

    # The same weights, declared as another file's: the refusal depends on that alone.
    with subject.loaded() as other, tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "other.gguf")
        file.write_bytes(b"the weights of another model")
        fingerprint.remember(other, str(file), None)
        what = "classify() with the calibration of another model"
        for task in (fitted, fitted_again):
            must_raise(CalibrationError, partial(task.classify, other, texts), what)
        own = _fitted(subject, other, texts)
        must_raise(CalibrationError, partial(own.classify, subject.model, texts), what)


def _task() -> Task:
    """Return a task of three two-word labels, none a prefix of another."""
    testable(find_spec("core_tasks") is not None, _MISSING)
    from core_tasks import Task

    words = {
        label: (label, more) for label, more in zip(ask.LABELS, ask.SEVERAL_WORDS, strict=True)
    }
    flat = [word.strip().casefold() for alternatives in words.values() for word in alternatives]
    apart = not any(
        one.startswith(other) for n, one in enumerate(flat) for other in flat[:n] + flat[n + 1 :]
    )
    return Task(_TEMPLATE, ask.LABELS, words=words if apart else {})


def _fitted(subject: Subject, model: TextModel, texts: Sequence[str]) -> Task:
    decisions = _decided(subject, _task(), texts, model)
    rows = [decision.logprobs or {} for decision in decisions]
    never = [label for label in ask.LABELS if all(row[label] == -math.inf for row in rows)]
    testable(
        not never,
        f"the log-probability of {', '.join(never)} is -inf after each of {len(rows)} texts, so "
        "that there is no prior: use another model",
    )
    return _task().fit_prior(model, texts, "batch")


def _decided(
    subject: Subject, task: Task, texts: Sequence[str], model: TextModel | None = None
) -> list[Decision]:
    decisions = task.classify(subject.model if model is None else model, texts)
    for text, decision in zip(texts, decisions, strict=True):
        well_formed(decision.error is None, f"{text!r:.60} got the error {decision.error!r}")
    return decisions


def _same(
    subject: Subject,
    texts: Sequence[str],
    wanted: Sequence[Decision],
    decisions: Sequence[Decision],
    how: str,
) -> None:
    most = _noise(subject)
    for text, own, other in zip(texts, wanted, decisions, strict=True):
        far = _far(own, other)
        must(
            far <= most and (own.label == other.label or not _leads(subject, own)),
            f"the decision of {text!r:.60} is {other.label!r}, {_shown(other)}, {how}; it was "
            f"{own.label!r}, {_shown(own)}",
        )


def _far(one: Decision, other: Decision) -> float:
    """Return the most by which a label's probability differs."""
    left, right = _shares(one), _shares(other)
    return max(abs(left[label] - right[label]) for label in left)


def _apart(one: Decision, other: Decision) -> float:
    """Return the most by which the logarithm of a label's probability differs.

    Next to a label that is nearly certain, the others differ in nothing else, and a prior shows it.
    """
    left, right = _shares(one), _shares(other)
    return max(
        abs(math.log(max(left[label], _LEAST) / max(right[label], _LEAST))) for label in left
    )


def _leads(subject: Subject, decision: Decision) -> bool:
    return (decision.margin or 0.0) > 2 * _noise(subject)


def _noise(subject: Subject) -> float:
    """Return the tolerance between two probabilities of one label.

    Both logprobs are tokens' sums.
    """
    return LONGEST_LABEL * subject.tolerance + _ROUNDING


def _shares(decision: Decision) -> Mapping[str, float]:
    return cast("Mapping[str, float]", decision.probabilities)


def _shown(decision: Decision) -> str:
    return str({label: round(share, 5) for label, share in _shares(decision).items()})
