"""Checks of label sentences: what a model says that compares a text with a sentence of each label.

Its scores are known by their softmax alone: the logarithms of two probabilities are as far apart
as the scores, whatever the other labels are.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import partial

from core.errors import (
    InvalidOptionError,
    LabelError,
    OptionError,
    RequestError,
    UnsupportedOperationError,
    UnsupportedOptionError,
)
from core.options import LABEL_SENTENCE
from core.protocols import Capability
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.ask import classify
from core_conformance.checking.budget import within
from core_conformance.checking.calls import must_raise
from core_conformance.checking.check import check, must, testable, well_formed
from core_conformance.checking.compare import label_logprobs, near
from core_conformance.checking.recall import same_results
from core_conformance.checking.sizes import overlong, short_context, words
from core_conformance.checking.subject import Subject

_NEVER = ("token", "logprobs", "label_mass", "logits")
_SENTENCES = ("{label}", "It is {label}.", "{label}, and again {label}")
_ODD = (
    *("{label}", "{0}", "{", "}}", "%s", "$&", r"\1", r"\g<0>"),
    *("a\nb", "é 漢字", ask.LABELS[0].upper()),
)
_ASKED = ask.PLAIN[:2]
_MANY = (9, 17, 33, 60, 150)  # labels
_SUM = 1e-5  # how far sums of probabilities may be off
_SOME = 0.3  # of the passes for one check
_FEW_TOKENS = 4096
_ALIKE = "to the model all labels are alike: use another model"


@check(
    "label_sentences.declared",
    "A model of label sentences MUST declare labels, and neither classify nor logits nor logprobs",
    Capability.LABEL_SENTENCES,
)
def what_goes_with_it(subject: Subject) -> None:
    without = (Capability.CLASSIFY, Capability.LOGITS, Capability.LOGPROBS)
    wrong = [name for name in without if subject.declares(name)]
    must(not wrong, f"it scores sentences, and declares {wrong}")
    must(subject.declares(Capability.LABELS), f"{Capability.LABELS} is not declared")


@check(
    "label_sentences.results",
    "Results of label sentences MUST have label, probabilities and margin, with labels_only the "
    "label, and never token, logprobs, label_mass or logits",
    Capability.LABEL_SENTENCES,
)
def results_have_no_token(subject: Subject) -> None:
    whole = classify(subject, ask.PLAIN, labels=ask.LABELS)
    alone = classify(subject, ask.PLAIN, labels=ask.LABELS, labels_only=True)
    for result in (*whole, *alone):
        must(isinstance(result, ClassifyResult), f"classify() gave {result!r}")
        filled = [name for name in _NEVER if getattr(result, name) is not None]
        must(not filled, f"scores of sentences are no log-probabilities, but {filled} are given")
    for one, other in zip(whole, alone, strict=True):
        must(None not in (one.probabilities, one.margin), f"probabilities or margin of {one}")
        logprobs = label_logprobs(one)
        must(
            near(subject, logprobs[other.label or ""], max(logprobs.values())),
            f"with labels_only the label is {other.label!r}, and the probabilities {logprobs}",
        )


@check(
    "label_sentences.probabilities",
    "Probabilities of label sentences MUST sum to 1 in the labels' order, label be the likeliest "
    "one, and margin its lead; all is 1 of a single label",
    Capability.LABEL_SENTENCES,
)
def probabilities_are_probabilities(subject: Subject) -> None:
    for labels in (ask.LABELS, ask.SEVERAL_WORDS, ask.LABELS[:1]):
        for result in classify(subject, ask.PLAIN, labels=labels):
            shares = result.probabilities or {}
            must(tuple(shares) == labels, f"probabilities {shares} are not of {list(labels)}")
            must(
                abs(math.fsum(shares.values()) - 1) <= _SUM and min(shares.values()) >= 0,
                f"probabilities {shares} do not sum to 1",
            )
            best, *others = sorted(shares.values(), reverse=True)
            lead = best - (others[0] if others else 0.0)
            must(
                shares.get(result.label or "") == best and abs((result.margin or 0) - lead) <= _SUM,
                f"label {result.label!r} and margin {result.margin} are given for {shares}",
            )


@check(
    "label_sentences.tolerance",
    "logit_tolerance MUST be small against the spread of the labels' scores",
    Capability.LABEL_SENTENCES,
)
def tolerance_is_small(subject: Subject) -> None:
    results = classify(subject, ask.PLAIN, labels=(*ask.LABELS, *ask.SEVERAL_WORDS))
    rows = [label_logprobs(result).values() for result in results]
    spread = statistics.median(max(row) - min(row) for row in rows)
    testable(spread > 0, _ALIKE)
    tolerance = subject.model.info.logit_tolerance
    must(
        2 * tolerance < spread,
        f"info.logit_tolerance is {tolerance:g}, and a text's scores spread over {spread:.3g}",
    )


@check(
    "label_sentences.independent",
    "How two labels compare MUST NOT depend on the other labels, their number and their order",
    Capability.LABEL_SENTENCES,
    broad=True,
)
def labels_are_independent(subject: Subject) -> None:
    labels = [*ask.LABELS, *ask.SEVERAL_WORDS]
    for some in (labels[::-1], labels[1:4], [labels[5], labels[0]]):
        _compare_alike(subject, labels, some)
    for count in within(subject, _MANY, lambda count: 2 + count, "labels in one call", _SOME):
        many = [label for first in ("", *words(2)) for label in _with(first, words(count))][:count]
        _compare_alike(subject, many, [many[-1], *many[8:-1:8], many[0]])


def _with(first: str, others: Sequence[str]) -> list[str]:
    return [f"{first} {other}".strip() for other in others]


def _compare_alike(subject: Subject, labels: Sequence[str], some: Sequence[str]) -> None:
    [whole] = classify(subject, [ask.QUESTION], labels=labels)
    [part] = classify(subject, [ask.QUESTION], labels=some)
    wanted, seen = label_logprobs(whole), label_logprobs(part)
    well_formed(list(seen) == list(some), f"labels={some} gave {part.probabilities}")
    for label in some[1:]:
        distances = (wanted[label] - wanted[some[0]], seen[label] - seen[some[0]])
        must(
            near(subject, *distances),
            f"the scores of {label!r} and {some[0]!r} differ by {distances[0]:.5f} among "
            f"{len(labels)} labels, and by {distances[1]:.5f} among {list(some)}",
        )


@check(
    "label_sentences.sentence",
    "The sentence MUST be label_sentence with the label, whatever it holds, in place of {label}",
    Capability.LABEL_SENTENCES,
)
def labels_stand_in_their_sentence(subject: Subject) -> None:
    # In pairs, because a small vocabulary may not tell odd ones apart.
    odd = [(label, ask.LABELS[1]) for label in _ODD]
    for labels in (ask.LABELS, ask.SEVERAL_WORDS, *odd):
        for sentence in _SENTENCES[1:]:
            wanted = _spelled(subject, labels, sentence)
            results = classify(subject, _ASKED, labels=labels, label_sentence=sentence)
            what = f"label_sentence={sentence!r}, and the sentences as labels,"
            same_results(subject, _ASKED, wanted, results, what)


@check(
    "label_sentences.braces",
    "Braces and percent signs in label_sentence MUST be plain text, but for {label}",
    Capability.LABEL_SENTENCES,
)
def other_braces_are_plain(subject: Subject) -> None:
    labels = ask.LABELS[:2]
    for sentence in ("{label} {0}", "{label} {other}", "{{label}}", "%s {label} %", "{ {label}"):
        (row,) = classify(subject, [ask.LONG], labels=labels, label_sentence=sentence)
        whole = tuple(sentence.replace("{label}", label) for label in labels)
        (wanted,) = classify(subject, [ask.LONG], labels=whole, label_sentence="{label}")
        seen, right = ([*(it.probabilities or {}).values()] for it in (row, wanted))
        must(
            all(near(subject, *pair) for pair in zip(seen, right, strict=True)),
            f"label_sentence={sentence!r} gave {row.probabilities}, and {wanted.probabilities} "
            "with these sentences as labels",
        )


@check(
    "label_sentences.default",
    f"label_sentence MUST be {LABEL_SENTENCE!r} by default",
    Capability.LABEL_SENTENCES,
)
def the_default_is_the_contract_s(subject: Subject) -> None:
    spelled = _spelled(subject, ask.LABELS, LABEL_SENTENCE)
    for options in ({}, {"label_sentence": LABEL_SENTENCE}):
        results = classify(subject, _ASKED, labels=ask.LABELS, **options)
        what = f"the default sentence, spelled, and {options}"
        same_results(subject, _ASKED, spelled, results, what)


@check(
    "label_sentences.counts",
    "Another label_sentence MUST give other scores",
    Capability.LABEL_SENTENCES,
)
def the_sentence_reaches_the_model(subject: Subject) -> None:
    by_sentence = [
        [
            label_logprobs(result)
            for result in classify(subject, ask.PLAIN, labels=ask.LABELS, label_sentence=sentence)
        ]
        for sentence in (*_SENTENCES, f"{ask.PLAIN[0]} {{label}}")
    ]
    must(
        any(rows != by_sentence[0] for rows in by_sentence[1:]),
        f"any label_sentence of {list(_SENTENCES)} gives the same probabilities",
    )


def _spelled(subject: Subject, labels: Sequence[str], sentence: str) -> list[ClassifyResult]:
    """Return the results for whole sentences as labels, under the labels' names."""
    sentences = [sentence.replace("{label}", label) for label in labels]
    results = classify(subject, _ASKED, labels=sentences, label_sentence="{label}")
    names = dict(zip(sentences, labels, strict=True))
    return [_renamed(result, names) for result in results]


def _renamed(result: ClassifyResult, names: dict[str, str]) -> ClassifyResult:
    shares = result.probabilities or {}
    well_formed(list(shares) == list(names), f"labels {list(names)} gave {shares}")
    return ClassifyResult(
        label=names.get(result.label or ""),
        probabilities={names[label]: share for label, share in shares.items()},
        margin=result.margin,
    )


@check(
    "label_sentences.refused",
    "classify of a model of label sentences MUST refuse at the call: no labels, duplicate and "
    "empty ones, a label_prefix, by its name, and a sentence without {label}",
    Capability.LABEL_SENTENCES,
)
def what_has_no_meaning_is_refused(subject: Subject) -> None:
    cases: list[tuple[dict[str, object], type[Exception], str]] = [
        ({"labels": ()}, UnsupportedOperationError, ""),
        ({"labels": ("a", "b", "a")}, LabelError, ""),
        ({"labels": ("a", "")}, OptionError, ""),
        ({"label_prefix": ""}, UnsupportedOptionError, "label_prefix"),
        ({"label_sentence": "This is it."}, InvalidOptionError, "label_sentence"),
    ]
    names = ["classify"]
    if subject.declares(Capability.CLASSIFY_STREAMING):
        names.append("classify_iter")
    for name in names:
        for options, kind, option in cases:
            call = partial(getattr(subject.model, name), [ask.QUESTION], **options)
            error = must_raise(kind, call, f"{name} with {options}")
            seen = getattr(error, "option", "")
            must(option in ("", seen), f"{name} with {options} was refused as {seen!r}")


@check(
    "label_sentences.too-long",
    "A label's sentence longer than the context MUST be an OptionError at the call, or the error "
    "of each row: it is never cut",
    Capability.LABEL_SENTENCES,
    broad=True,
)
def long_sentences_are_not_cut(subject: Subject) -> None:
    with short_context(subject, _FEW_TOKENS) as model:
        try:
            results = model.classify(ask.PLAIN[:2], labels=(ask.LABELS[0], overlong(model)))
        except OptionError:
            must(True, "")
            return
        for result in results:
            must(
                isinstance(result.error, RequestError),
                f"with a label longer than the context a row has the error {result.error!r}",
            )
