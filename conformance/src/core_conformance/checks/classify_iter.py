"""classify_iter: what classify gives, while the input is still being read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import cast

from core.capability import Capability
from core.extensions import ClassifyStreaming
from core.types import Token
from core_conformance import prompts
from core_conformance.answers import classify, evidence, sampled
from core_conformance.model import must
from core_conformance.registry import check
from core_conformance.relations import same_answers
from core_conformance.subject import Subject

_LOOK_AHEAD = 20_000  # prompts: more than any sensible look-ahead


@check(
    "classify.stream",
    "classify_iter MUST give what classify gives, in input order",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
)
def stream_equals_classify(subject: Subject) -> None:
    given = [prompts.PLAIN[i % len(prompts.PLAIN)] for i in (3, 0, 4, 4, 1, 5, 2, 0)]
    whole = classify(subject, given, **evidence(subject))
    streamed = list(_streaming(subject).classify_iter(iter(given), **evidence(subject)))
    must(len(streamed) == len(given), f"{len(given)} prompts gave {len(streamed)} results")
    pairs = [
        (sampled(a, prompt), sampled(b))
        for prompt, a, b in zip(given, whole, streamed, strict=True)
    ]
    same_answers(subject, pairs, "classify and classify_iter")


@check(
    "classify.stream-endless",
    "classify_iter MUST begin to answer before its input ends",
    Capability.CLASSIFY_STREAMING,
)
def stream_reads_as_it_goes(subject: Subject) -> None:
    # An endless input would hang what reads it all: this one ends, beyond any sensible look-ahead.
    found = _streaming(subject).classify_iter(_many())
    results = list(itertools.islice(found, 3))
    must(
        len(results) == 3 and all(isinstance(result.token, Token) for result in results),
        f"the first three results of a long input are {results!r:.200}",
    )


def _many() -> Iterator[str]:
    for i in range(_LOOK_AHEAD):
        yield prompts.PLAIN[i % len(prompts.PLAIN)]
    must(False, f"classify_iter read {_LOOK_AHEAD} prompts before it gave out a third result")


def _streaming(subject: Subject) -> ClassifyStreaming:
    return cast("ClassifyStreaming", subject.model)
