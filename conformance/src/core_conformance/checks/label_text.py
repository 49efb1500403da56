"""What stands between a prompt and its labels, and labels that cannot be used."""

from __future__ import annotations

from core.capability import Capability
from core.errors import LabelError, OptionError
from core_conformance import prompts
from core_conformance.answers import classify
from core_conformance.model import must
from core_conformance.registry import check
from core_conformance.relations import label_logprobs, near, same_logprobs
from core_conformance.subject import Subject


@check(
    "labels.prefix",
    "label_prefix MUST stand between prompt and label, one space by default",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def prefix_stands_between(subject: Subject) -> None:
    spaced = [f" {label}" for label in prompts.LABELS]
    spelled = classify(subject, [prompts.QUESTION], labels=spaced, label_prefix="")[0]
    wanted = dict(zip(prompts.LABELS, label_logprobs(spelled).values(), strict=True))
    for options in ({}, {"label_prefix": " "}):
        result = classify(subject, [prompts.QUESTION], labels=prompts.LABELS, **options)[0]
        same_logprobs(subject, wanted, result, f"{options} against the labels {spaced}")
    other = classify(subject, [prompts.QUESTION], labels=prompts.LABELS, label_prefix=": ")[0]
    must(
        any(not near(subject, wanted[k], v) for k, v in label_logprobs(other).items()),
        "label_prefix=': ' gives every label the logprob that ' ' gives it",
    )


@check(
    "labels.white-space",
    "Behind a prompt that ends in white space, labels MUST come without label_prefix",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def white_space_replaces_the_prefix(subject: Subject) -> None:
    for end in (" ", "\n"):
        prompt = prompts.QUESTION + end
        bare = classify(subject, [prompt], labels=prompts.LABELS, label_prefix="")[0]
        result = classify(subject, [prompt], labels=prompts.LABELS)[0]
        same_logprobs(subject, label_logprobs(bare), result, f"{prompt!r}, with the default prefix")


@check(
    "labels.refused",
    "Duplicate labels MUST raise LabelError, an empty one OptionError, at the call",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def unusable_labels_are_refused(subject: Subject) -> None:
    kinds: list[tuple[tuple[str, ...], type[OptionError]]] = [
        (("good", "bad", "good"), LabelError),
        (("good", ""), OptionError),
    ]
    for labels, error in kinds:
        _refused(subject, labels, error)


def _refused(subject: Subject, labels: tuple[str, ...], error: type[OptionError]) -> None:
    try:
        found = subject.model.classify([prompts.QUESTION], labels=labels)
    except error:
        return
    must(False, f"labels={labels} raised no {error.__name__}; the result was {found!r:.120}")
