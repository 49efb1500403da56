"""Checks of many labels, of long ones, and of labels that are the beginnings of others.

A label's logprob is compared with those it has alone, in two parts, and as a continuation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from core.protocols import Capability
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.ask import classify, score, tokenizing
from core_conformance.checking.budget import within
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import best_label, label_logprobs, near
from core_conformance.checking.sizes import NO_SIZES, cuts, room, sized, words
from core_conformance.checking.subject import Subject

_MANY = (9, 20, 17, 33, 60, 150, 300)  # labels
_LONG = (33, 17, 40, 65, 9, 8, 16, 32, 64)  # tokens of a label
_NESTED = 8  # labels, each the beginning of the next
_FIRSTS = 3  # words, with which labels of two words begin
_SOME = 0.3  # of the passes for one check
_PASS = 20  # tokens
_SUM = 1e-4  # how far sums of probabilities may be off: they are made from float32 logits
_ROUNDING = 1e-5  # of a logprob: many numbers may be summed in float32


@check(
    "labels.many",
    "Any number of labels MUST each have the logprob that they have alone, and sum to 1",
    Capability.CLASSIFY,
    Capability.LABELS,
    broad=True,
)
def many_labels(subject: Subject) -> None:
    for count in within(subject, _MANY, lambda count: 8 + count / 10, "labels in one call", _SOME):
        labels = words(count)[::-1]
        if len(labels) < count:
            labels = [str(number) for number in range(100, 100 + count)]
        result = classify(subject, [ask.QUESTION], labels=labels)[0]
        _is_distribution(result, count)
        _same_alone(subject, result, [*labels[:1], *labels[8 :: 8 + count // 10], *labels[-1:]])


@check(
    "labels.long",
    "A label of any number of tokens MUST have the joint logprob of all of them",
    Capability.CLASSIFY,
    Capability.LABELS,
    Capability.TOKENIZING,
    broad=True,
)
def long_labels(subject: Subject) -> None:
    head, fronts = _continued(subject)
    sizes = [
        size for size in _LONG if {head + size, head + size - 1, head + size // 2} <= set(fronts)
    ]
    testable(bool(sizes), NO_SIZES)

    for size in within(subject, sizes, lambda size: 4 + size / 5, "tokens of a label", _SOME):
        # Another label begins with the same tokens, all but the last.
        front, middle = fronts[head + size], fronts[head + size // 2]
        label, other = _after(front), _after(fronts[head + size - 1]) + " or else"
        logprobs = label_logprobs(classify(subject, [ask.QUESTION], labels=(label, other))[0])
        _agree(subject, logprobs, label, _in_parts(subject, middle, front), size, "in two parts")

        if subject.declares(Capability.SCORING):
            for text in (label, other):
                scored = score(subject, [ask.QUESTION], [f" {text}"])[0]
                tokens = len(scored.token_logprobs)
                _agree(subject, logprobs, text, scored.logprob, tokens, "as a continuation")


@check(
    "labels.nested",
    "Labels that begin with one another MUST each have the logprob that they have alone",
    Capability.CLASSIFY,
    Capability.LABELS,
    broad=True,
)
def nested_labels(subject: Subject) -> None:
    chain = words(_NESTED)
    nested = [" ".join(chain[:count]) for count in range(1, _NESTED + 1)]
    orders = {"the shortest first": nested, "the longest first": nested[::-1]}
    for order in within(subject, orders, lambda _: _NESTED, "orders of labels", _SOME):
        labels = orders[order]
        result = classify(subject, [ask.QUESTION], labels=labels)[0]
        _same_alone(subject, result, labels)
        if _extend(subject, nested):
            most = math.exp(label_logprobs(result)[nested[0]])
            must(
                abs((result.label_mass or 0.0) - most) <= 0.001 * most,
                f"label_mass of {labels} is {result.label_mass}; all begin with {nested[0]!r}, "
                f"whose probability is {most:.6g}",
            )


@check(
    "labels.only",
    "With labels_only, label MUST be the likeliest of all, however many there are and how long",
    Capability.CLASSIFY,
    Capability.LABELS,
    broad=True,
)
def only_the_label(subject: Subject) -> None:
    chain, firsts = words(_NESTED), words(_FIRSTS)
    sets = {
        "twelve of two words": [f"{one} {two}" for one in firsts for two in words(7)[_FIRSTS:]],
        "nested ones": [" ".join(chain[:count]) for count in range(_NESTED, 0, -1)],
        "many of one word": words(_MANY[4]),
        "many of two words": [f"{one} {two}" for one in firsts for two in words(23)[_FIRSTS:]],
    }
    for kind in within(subject, sets, lambda kind: 4 + len(sets[kind]) / 10, "labels", _SOME):
        labels = sets[kind]
        whole = classify(subject, ask.PLAIN[:4], labels=labels)
        alone = classify(subject, ask.PLAIN[:4], labels=labels, labels_only=True)
        for prompt, wanted, result in zip(ask.PLAIN, whole, alone, strict=False):
            best_label(subject, wanted, result, f"labels_only, {kind}, after {prompt!r}")


def _is_distribution(result: ClassifyResult, count: int) -> None:
    logprobs, probabilities = label_logprobs(result), result.probabilities or {}
    must(len(probabilities) == count, f"{count} labels have {len(probabilities)} probabilities")
    total = math.fsum(probabilities.values())
    must(abs(total - 1) <= _SUM, f"the probabilities of {count} labels sum to {total:.6f}")

    # Each is the softmax of its logprob, and the best is the label.
    top = max(logprobs.values())
    scale = math.fsum(math.exp(value - top) for value in logprobs.values())
    wrong = [
        label
        for label, value in logprobs.items()
        if abs(probabilities.get(label, math.nan) - math.exp(value - top) / scale) > _SUM
    ]
    must(not wrong, f"of {count} labels, {wrong} have a probability that is not the softmax's")
    best = max(probabilities.values())
    must(
        probabilities.get(result.label or "") == best,
        f"of {count} labels, {result.label!r} was chosen, and the best probability is {best:.5f}",
    )

    # No label is the beginning of another.
    mass = math.fsum(map(math.exp, logprobs.values()))
    must(
        abs((result.label_mass or 0.0) - mass) <= _SUM,
        f"label_mass of {count} labels is {result.label_mass}, and they sum to {mass:.6f}",
    )


def _same_alone(subject: Subject, result: ClassifyResult, labels: list[str]) -> None:
    logprobs = label_logprobs(result)
    for label in labels:
        alone = label_logprobs(classify(subject, [ask.QUESTION], labels=(label,))[0])
        what = f"alone, not among {len(logprobs)}"
        _agree(subject, logprobs, label, alone[label], len(label) + 1, what)


def _agree(
    subject: Subject,
    logprobs: Mapping[str, float],
    label: str,
    wanted: float,
    tokens: int,
    how: str,
) -> None:
    rounding = _ROUNDING * abs(wanted)
    must(
        near(subject, logprobs[label], wanted, tokens + 1)
        or abs(logprobs[label] - wanted) <= rounding,
        f"{label!r} has the logprob {logprobs[label]:.5f}; {how} it has {wanted:.5f}",
    )


def _continued(subject: Subject) -> tuple[int, dict[int, str]]:
    """Return the tokens of the question, and what continues it by the tokens of both."""
    size = room(subject, spare=_PASS) - len(ask.QUESTION)
    fronts = cuts(subject, f"{ask.QUESTION} {sized(subject, size, turn=6) or ''}")
    head = len(tokenizing(subject).encode(ask.QUESTION))
    return head, {size: text for size, text in fronts.items() if not text.endswith(" ")}


def _after(front: str) -> str:
    return front[len(ask.QUESTION) + 1 :]


def _in_parts(subject: Subject, middle: str, front: str) -> float:
    """Return the logprob of a text after the question, read as two labels, one after the other."""
    parts = (ask.QUESTION, middle[len(ask.QUESTION) :]), (middle, front[len(middle) :])
    return math.fsum(
        label_logprobs(classify(subject, [prompt], labels=(label,), label_prefix="")[0])[label]
        for prompt, label in parts
    )


def _extend(subject: Subject, nested: list[str]) -> bool:
    """Return whether each label's tokens visibly begin with those of the first label."""
    if not subject.declares(Capability.TOKENIZING):
        return False
    rows = [list(tokenizing(subject).encode(f"{ask.QUESTION} {label}")) for label in nested]
    return all(row[: len(rows[0])] == rows[0] for row in rows)
