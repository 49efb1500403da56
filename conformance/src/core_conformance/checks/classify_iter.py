"""Checks of classify_iter: classify's results and options, while the input is being read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

from core.extensions import ClassifyStreaming
from core.protocols import Capability
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.ask import answered, classify, evidence, row_logits, sampled
from core_conformance.checking.check import check, must, well_formed
from core_conformance.checking.compare import (
    apart,
    label_logprobs,
    same_answers,
    same_logits,
    same_logprobs,
)
from core_conformance.checking.sizes import rows
from core_conformance.checking.subject import Subject

_LOOK_AHEAD = 20_000  # prompts: more than any sensible look-ahead
_ASKED = ask.PLAIN


@check(
    "classify.stream",
    "classify_iter MUST give what classify gives, in input order",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
)
def stream_equals_classify(subject: Subject) -> None:
    given = [ask.PLAIN[i % len(ask.PLAIN)] for i in (3, 0, 4, 4, 1, 5, 2, 0)]
    whole = classify(subject, given, **evidence(subject))
    streamed = list(_streaming(subject).classify_iter(iter(given), **evidence(subject)))
    well_formed(len(streamed) == len(given), f"{len(given)} prompts gave {len(streamed)} results")
    pairs = [
        (sampled(a, prompt), sampled(b))
        for prompt, a, b in zip(given, whole, streamed, strict=True)
    ]
    same_answers(subject, pairs, "classify and classify_iter")
    apart([left.ids for left, _ in pairs])


@check(
    "classify.stream-endless",
    "classify_iter MUST begin to answer before its input ends",
    Capability.CLASSIFY_STREAMING,
)
def stream_reads_as_it_goes(subject: Subject) -> None:
    # An endless input would hang what reads it all: this one ends, beyond any sensible look-ahead.
    stream = _streaming(subject).classify_iter(_many())
    results = list(itertools.islice(stream, 3))
    must(
        len(results) == 3 and all(map(answered, results)),
        f"the first three results of a long input are {results!r:.200}",
    )


def _many() -> Iterator[str]:
    for i in range(_LOOK_AHEAD):
        yield ask.PLAIN[i % len(ask.PLAIN)]
    must(False, f"classify_iter read {_LOOK_AHEAD} prompts before it gave out a third result")


def _streaming(subject: Subject) -> ClassifyStreaming:
    return cast("ClassifyStreaming", subject.model)


@check(
    "classify.stream-logits",
    "classify_iter MUST give the logits that classify gives",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
    Capability.LOGITS,
)
def logits(subject: Subject) -> None:
    expected = classify(subject, _ASKED[:2], return_logits=True)
    streamed = _streamed(subject, return_logits=True)[:2]
    for left, right in zip(expected, streamed, strict=True):
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
        options: dict[str, Any] = {"labels": ask.LABELS, "label_prefix": prefix}
        expected = classify(subject, _ASKED, **options)
        for left, right in zip(expected, _streamed(subject, **options), strict=True):
            what = f"classify_iter with label_prefix={prefix!r}"
            must(right.label in ask.LABELS, f"{what} gave the label {right.label!r}")
            same_logprobs(subject, label_logprobs(left), right, what)


def _streamed(subject: Subject, **options: Any) -> list[ClassifyResult]:
    model = cast("ClassifyStreaming", subject.model)
    results = list(model.classify_iter(iter(_ASKED), **options))
    well_formed(len(results) == len(_ASKED), f"{len(_ASKED)} prompts gave {len(results)} results")
    return results


_ROWS = 150  # more than a block of any size that pays


@check(
    "metrics.classify-iter",
    "The metrics of classify_iter that was read to its end MUST count all of its prompts",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
    broad=True,
)
def every_block_counts(subject: Subject) -> None:
    prompts, model = rows(_ROWS), cast("Any", subject.model)
    model.classify(prompts)
    whole = model.metrics
    list(model.classify_iter(iter(prompts)))
    streamed = model.metrics
    must(whole.prompt_tokens > 0, "classify counts no prompt_tokens")
    must(
        streamed.prompt_tokens == whole.prompt_tokens,
        f"classify_iter of {_ROWS} prompts counts {streamed.prompt_tokens} prompt_tokens, and "
        f"classify {whole.prompt_tokens}",
    )
