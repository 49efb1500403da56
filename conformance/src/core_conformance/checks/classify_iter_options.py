"""classify_iter honours its options as classify does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from core.capability import Capability
from core.extensions import ClassifyStreaming
from core.types import ClassifyResult
from core_conformance import prompts
from core_conformance.answers import Answer, classify, evidence, row_logits, sampled
from core_conformance.honouring import Operation, Options, honours
from core_conformance.model import must
from core_conformance.registry import check
from core_conformance.relations import label_logprobs, same_logits, same_logprobs
from core_conformance.subject import Subject

_ASKED = prompts.PLAIN


@check(
    "classify.stream-options",
    "classify_iter MUST honour every option of sampling as classify does",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
)
def sampling_options(subject: Subject) -> None:
    def streamed(max_tokens: int, options: Options) -> list[Answer]:
        return _answers(_streamed(subject, **evidence(subject) | options))

    def whole(max_tokens: int, options: Options) -> list[Answer]:
        return _answers(classify(subject, _ASKED, **evidence(subject) | options))

    honours(
        subject, Operation("classify_iter", streamed, False), Operation("classify", whole, False)
    )


@check(
    "classify.stream-logits",
    "classify_iter MUST give the logits that classify gives",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def logits(subject: Subject) -> None:
    expected = classify(subject, _ASKED[:2], return_logits=True)
    found = _streamed(subject, return_logits=True)[:2]
    for left, right in zip(expected, found, strict=True):
        same_logits(subject, row_logits(left), row_logits(right), "classify and classify_iter")


@check(
    "classify.stream-labels",
    "classify_iter MUST honour labels and label_prefix as classify does",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
    Capability.LABELS,
)
def labels(subject: Subject) -> None:
    for prefix in (" ", "", "\n"):
        options: dict[str, Any] = {"labels": prompts.LABELS, "label_prefix": prefix}
        expected = classify(subject, _ASKED, **options)
        for left, right in zip(expected, _streamed(subject, **options), strict=True):
            what = f"classify_iter with label_prefix={prefix!r}"
            must(right.label in prompts.LABELS, f"{what} gave the label {right.label!r}")
            same_logprobs(subject, label_logprobs(left), right, what)


def _streamed(subject: Subject, **options: Any) -> list[ClassifyResult]:
    model = cast("ClassifyStreaming", subject.model)
    results = list(model.classify_iter(iter(_ASKED), **options))
    must(len(results) == len(_ASKED), f"{len(_ASKED)} prompts gave {len(results)} results")
    return results


def _answers(results: Sequence[ClassifyResult]) -> list[Answer]:
    return [sampled(result, prompt) for prompt, result in zip(_ASKED, results, strict=True)]
