"""Clauses over the table of ways: labels that resemble one another, and those that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.errors import LabelError, OptionError
from core.protocols import Capability
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.ask import tokenizing
from core_conformance.checking.budget import within
from core_conformance.checking.calls import must_raise, promptly
from core_conformance.checking.check import check, must
from core_conformance.checking.compare import best_label, label_logprobs, same_logprobs
from core_conformance.checking.sizes import words
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.forms import forms
from core_conformance.checking.ways.oddities import BROKEN, TEXTS

_SETS = {
    "three nested": ("good", "good day", "good day sir", "bad"),
    "that differ in case": ("good", "Good", "GOOD", "bad"),
    "that differ in blanks": ("good", "good ", "good  ", "bad"),
    "of any text": (*(text for text in TEXTS.values() if not text.isspace()),),
    "that are many": (*words(17),),
}
_REFUSED: dict[str, tuple[tuple[str, ...], type[Exception]]] = {
    "twice the same": (("good", "bad", "good"), LabelError),
    "one of them empty": (("good", ""), OptionError),
    "one of them not valid Unicode": (("good", BROKEN), OptionError),
}
_PROMPTS = ask.PLAIN[:2]
_SOME = 4  # labels that are judged alone


@check(
    "labels.ways",
    "Labels that begin with one another, that differ in case or blanks alone, of any text and any "
    "number MUST each be judged as alone, in every operation with labels, and in labels_only",
    (Capability.CLASSIFY, Capability.LABEL_SENTENCES),
    Capability.LABELS,
    broad=True,
)
def labels_that_resemble(subject: Subject) -> None:
    sentences = subject.declares(Capability.LABEL_SENTENCES)
    for name, labels in within(subject, _SETS.items(), lambda _: 30.0, "labels", 1.0):
        labels = _told_apart(subject, labels)
        given = ask.classify(subject, _PROMPTS, labels=labels)
        if not sentences:
            _as_alone(subject, labels, given, name)
        for way, model, operation in _callers(subject):
            results = _results(subject, model, operation, labels=labels[::-1])
            what = f"{way} with labels {name}, in another order"
            for prompt, one, other in zip(_PROMPTS, given, results, strict=True):
                must(other.error is None, f"{what}: {prompt!r} has the error {other.error!r}")
                same_logprobs(subject, label_logprobs(one), other, f"{what}, after {prompt!r}")
            only = _results(subject, model, operation, labels=labels, labels_only=True)
            for one, other in zip(given, only, strict=True):
                best_label(subject, one, other, f"{way} with labels {name} and labels_only")


@check(
    "labels.refused-ways",
    "Labels of which two are the same, one is empty or not valid Unicode MUST raise OptionError at "
    "the call, in every operation with labels",
    (Capability.CLASSIFY, Capability.LABEL_SENTENCES),
    Capability.LABELS,
    broad=True,
)
def labels_that_are_refused(subject: Subject) -> None:
    for way, model, operation in _callers(subject):
        for name, (labels, kind) in _REFUSED.items():

            def call(model: Any = model, operation: str = operation, labels: Any = labels) -> None:
                _results(subject, model, operation, labels=labels)

            must_raise(kind, call, f"{way} with labels, {name},")


def _callers(subject: Subject) -> list[tuple[str, Any, str]]:
    """Return the operations with labels: the name of each, its model and its method."""
    operations = {"classify": "classify"}
    if subject.declares(Capability.CLASSIFY_STREAMING):
        operations["classify_iter"] = "classify_iter"
    models = [*forms(subject, subject.model)]
    return [(form + name, model, name) for form, model in models for name in operations]


def _results(subject: Subject, model: Any, operation: str, **options: Any) -> list[ClassifyResult]:
    call = getattr(model, operation)
    given = _PROMPTS if operation == "classify" else iter(_PROMPTS)
    return promptly(subject, lambda: [*call(given, **options)], operation)


def _told_apart(subject: Subject, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels that the tokenizer tells apart, and that begin after the prompt."""
    if not subject.declares(Capability.TOKENIZING):
        return tuple(labels)
    if subject.declares(Capability.LABEL_SENTENCES):
        return tuple({tuple(tokenizing(subject).encode(one)): one for one in labels}.values())
    encode, known = tokenizing(subject).encode, dict[tuple[int, ...], str]()
    for label in labels:
        spelled = label if label[:1].isspace() else f" {label}"
        ids = [encode(prompt + spelled) for prompt in _PROMPTS]
        heads = [encode(prompt) for prompt in _PROMPTS]
        if all(one[: len(head)] == head for one, head in zip(ids, heads, strict=True)):
            known.setdefault(tuple(ids[0]), label)
    return tuple(known.values())


def _as_alone(
    subject: Subject, labels: Sequence[str], given: Sequence[ClassifyResult], name: str
) -> None:
    for label in labels[:_SOME]:
        alone = ask.classify(subject, _PROMPTS, labels=(label,))
        for prompt, one, other in zip(_PROMPTS, alone, given, strict=True):
            what = f"{label!r} after {prompt!r}, alone and among labels {name}"
            same_logprobs(subject, label_logprobs(one), other, what)
