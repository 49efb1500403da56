"""Labels: probabilities that are probabilities, of whole labels, each as if asked alone.

The text between a prompt and its labels counts, and labels that cannot be used are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import cast

from core.errors import InvalidOptionError, LabelError, OptionError
from core.protocols import Capability
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.ask import classify, evidence, sampled, token, tokenizing
from core_conformance.checking.calls import must_raise
from core_conformance.checking.check import check, must, testable, well_formed
from core_conformance.checking.compare import (
    apart,
    label_logprobs,
    near,
    same_answers,
    same_logprobs,
)
from core_conformance.checking.subject import Subject

_NO_EXTENSION = (
    f"after none of the labels {list(ask.LABELS)} does the model produce text that its tokenizer "
    "keeps separate from them: use another model"
)
_NO_LEAD = "use a model that prefers some labels"
_SUM = 1e-4  # how far sums of probabilities may be off: they are made from float32 logits


@check(
    "labels.probabilities",
    "probabilities MUST sum to 1 over the labels, in their order: the softmax of logprobs",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def probabilities_are_a_softmax(subject: Subject) -> None:
    for labels in (ask.LABELS, ask.SEVERAL_WORDS):
        for result in classify(subject, ask.PLAIN[:3], labels=labels):
            probabilities, logprobs = _probabilities(result), label_logprobs(result)
            for name, by_label in (("probabilities", probabilities), ("logprobs", logprobs)):
                must(
                    tuple(by_label) == labels,
                    f"{name} has the keys {list(by_label)}, and the labels are {list(labels)}",
                )

            total = math.fsum(probabilities.values())
            must(abs(total - 1) <= _SUM, f"probabilities {probabilities} sum to {total:.6f}")

            if max(logprobs.values()) == -math.inf:
                continue  # none of them can come: a softmax is undefined
            for label, expected in _softmax(logprobs).items():
                must(
                    abs(probabilities[label] - expected) <= _SUM,
                    f"{label!r} has the probability {probabilities[label]:.5f}; the softmax of "
                    f"{logprobs} gives it {expected:.5f}",
                )


@check(
    "labels.label",
    "label MUST be the most probable label, and margin its lead over the second",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def label_is_the_best(subject: Subject) -> None:
    leads = []
    for result in classify(subject, ask.PLAIN, labels=ask.LABELS):
        probabilities = _probabilities(result)
        best, second = sorted(probabilities.values(), reverse=True)[:2]
        leads.append(best - second)
        must(
            probabilities.get(result.label or "") == best,
            f"label is {result.label!r}, and the probabilities are {probabilities}",
        )
        margin = result.margin
        must(
            margin is not None and abs(margin - (best - second)) <= _SUM,
            f"margin is {margin}; the two best of {probabilities} are {best - second:.5f} apart",
        )
    testable(
        max(leads) > _SUM,
        f"after each of {len(leads)} prompts the two likeliest of {list(ask.LABELS)} differ in "
        f"probability by at most {max(leads):.1g}, and less than {_SUM:g} is rounding: {_NO_LEAD}",
    )


@check(
    "labels.single",
    "A single label MUST have probability and margin 1, and its own logprob",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def one_label(subject: Subject) -> None:
    several = classify(subject, [ask.QUESTION], labels=ask.LABELS)[0]
    label = ask.LABELS[1]
    result = classify(subject, [ask.QUESTION], labels=(label,))[0]
    must(
        result.label == label
        and result.margin == 1.0
        and abs(_probabilities(result)[label] - 1.0) <= _SUM,
        f"labels=({label!r},) gave {result!r}",
    )
    same_logprobs(subject, {label: label_logprobs(several)[label]}, result, "asked alone")


@check(
    "labels.mass",
    "label_mass MUST be the full-vocabulary probability that one of the labels comes",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def mass_is_the_sum(subject: Subject) -> None:
    for labels in (ask.LABELS, ask.SEVERAL_WORDS):
        for result in classify(subject, ask.PLAIN[:3], labels=labels):
            expected = math.fsum(map(math.exp, label_logprobs(result).values()))
            mass = _mass(result)
            must(
                0.0 <= mass <= 1.0 and abs(mass - expected) <= _SUM,
                f"label_mass is {mass!r}, and the labels' joint probabilities sum to "
                f"{expected:.6f}: {label_logprobs(result)}",
            )


@check(
    "labels.mass-extended",
    "A label that extends another MUST add nothing to label_mass",
    Capability.CLASSIFY,
    Capability.LABELS,
    Capability.TOKENIZING,
)
def extension_adds_nothing(subject: Subject) -> None:
    for short in ask.LABELS:
        more = _extension(subject, f"{ask.QUESTION} {short}")
        if not more:
            continue
        result = classify(subject, [ask.QUESTION], labels=(short, short + more))[0]
        mass, expected = _mass(result), math.exp(label_logprobs(result)[short])
        must(
            abs(mass - expected) <= 0.001 * expected,
            f"label_mass of {short!r} and {short + more!r} is {mass:.6g}; whatever begins with the "
            f"second begins with the first, whose probability is {expected:.6g}",
        )
        return
    testable(False, _NO_EXTENSION)


@check(
    "labels.independent",
    "A label's logprob MUST depend neither on the other labels nor on their order",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def labels_are_independent(subject: Subject) -> None:
    labels = (*ask.LABELS, *ask.SEVERAL_WORDS)
    whole = classify(subject, [ask.QUESTION], labels=labels)[0]
    for some in (labels[::-1], labels[1:4], (labels[5], labels[0])):
        result = classify(subject, [ask.QUESTION], labels=some)[0]
        must(tuple(label_logprobs(result)) == some, f"labels={some} gave {label_logprobs(result)}")
        wanted = {label: label_logprobs(whole)[label] for label in some}
        same_logprobs(subject, wanted, result, f"asked among {some}")


@check(
    "labels.neighbours",
    "Other rows of the batch MUST NOT change a prompt's label probabilities",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def neighbours_change_nothing(subject: Subject) -> None:
    given = [ask.SHORT, ask.QUESTION, ask.LONG, *ask.HOSTILE[1:3]]
    singles = list[ClassifyResult]()
    for labels in (ask.LABELS, ask.SEVERAL_WORDS):
        together = classify(subject, given, labels=labels)
        for prompt, result in zip(given, together, strict=True):
            alone = classify(subject, [prompt], labels=labels)[0]
            same_logprobs(
                subject, label_logprobs(alone), result, f"{prompt!r} in a batch, not alone"
            )
            singles.append(alone)
    apart([label_logprobs(alone) for alone in singles[: len(given)]])


@check(
    "labels.token",
    "With labels, token MUST be what it is without: what the prompt's end says",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def token_is_the_same(subject: Subject) -> None:
    prompts = ask.PLAIN[:3]
    without = classify(subject, prompts, **evidence(subject))
    with_labels = classify(subject, prompts, labels=ask.LABELS, **evidence(subject))
    pairs = [
        (sampled(left, prompt), sampled(right))
        for prompt, left, right in zip(prompts, without, with_labels, strict=True)
    ]
    same_answers(subject, pairs, "classify without and with labels")


def _extension(subject: Subject, text: str) -> str:
    """Return a likely continuation, so that a difference would show.

    "" if it joins the preceding tokens.
    """
    more, encode = token(classify(subject, [text])[0]).text, tokenizing(subject).encode
    head = encode(text)
    return more if encode(text + more)[: len(head)] == head else ""


def _probabilities(result: ClassifyResult) -> dict[str, float]:
    well_formed(
        isinstance(result.probabilities, dict), f"labels were given: no probabilities in {result}"
    )
    return cast("dict[str, float]", result.probabilities)


def _mass(result: ClassifyResult) -> float:
    well_formed(
        isinstance(result.label_mass, float), f"labels were given: no label_mass in {result}"
    )
    return cast("float", result.label_mass)


def _softmax(logprobs: Mapping[str, float]) -> dict[str, float]:
    top = max(logprobs.values())
    weights = {label: math.exp(value - top) for label, value in logprobs.items()}
    total = math.fsum(weights.values())
    return {label: weight / total for label, weight in weights.items()}


@check(
    "labels.prefix",
    "label_prefix MUST stand between prompt and label, one space by default",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def prefix_stands_between(subject: Subject) -> None:
    spaced = [f" {label}" for label in ask.LABELS]
    spelled = classify(subject, [ask.QUESTION], labels=spaced, label_prefix="")[0]
    wanted = dict(zip(ask.LABELS, label_logprobs(spelled).values(), strict=True))
    for options in ({}, {"label_prefix": " "}):
        result = classify(subject, [ask.QUESTION], labels=ask.LABELS, **options)[0]
        same_logprobs(subject, wanted, result, f"{options} against the labels {spaced}")
    other = classify(subject, [ask.QUESTION], labels=ask.LABELS, label_prefix=": ")[0]
    must(
        any(not near(subject, wanted[k], v) for k, v in label_logprobs(other).items()),
        "label_prefix=': ' gives every label the logprob that ' ' gives it",
    )


@check(
    "labels.white-space",
    "After a prompt that ends in white space, labels MUST come without label_prefix",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def white_space_replaces_the_prefix(subject: Subject) -> None:
    for end in (" ", "\n"):
        prompt = ask.QUESTION + end
        bare = classify(subject, [prompt], labels=ask.LABELS, label_prefix="")[0]
        result = classify(subject, [prompt], labels=ask.LABELS)[0]
        same_logprobs(subject, label_logprobs(bare), result, f"{prompt!r}, with the default prefix")


@check(
    "labels.refused",
    "Duplicate labels MUST raise LabelError, an empty one InvalidOptionError, at the call of "
    "classify and of classify_iter",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def unusable_labels_are_refused(subject: Subject) -> None:
    kinds: list[tuple[tuple[str, ...], type[OptionError]]] = [
        (("good", "bad", "good"), LabelError),
        (("good", ""), InvalidOptionError),
    ]
    for operation in (Capability.CLASSIFY, Capability.CLASSIFY_STREAMING):
        name = "classify" if operation is Capability.CLASSIFY else "classify_iter"
        for labels, error in kinds if subject.declares(operation) else []:
            call = partial(getattr(subject.model, name), [ask.QUESTION], labels=labels)
            must_raise(error, call, f"{name} with labels={labels}")
