"""The operations that draw tokens, asked alike, and equal rows that are drawn for each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from core.protocols import Capability
from core_conformance.checking import budget
from core_conformance.checking.ask import (
    SPEAKING,
    Answer,
    answer,
    batch,
    classify,
    generate,
    sampled,
    voice,
)
from core_conformance.checking.subject import Subject

_LEAST = 8  # rows of the first call: it may be that equal rows are not computed once


def drawing(subject: Subject) -> list[Capability]:
    """Return the operations that draw, of those declared.

    One that gives streams, and those with rows.
    """
    streams = [voice(subject)] if any(map(subject.declares, SPEAKING)) else []
    rows = (Capability.CLASSIFY, Capability.BATCH_GENERATE)
    return [*streams, *filter(subject.declares, rows)]


def draw(
    subject: Subject, name: Capability, prompts: Sequence[str], max_tokens: int = 1, **options: Any
) -> list[Answer]:
    """Return an answer of ``max_tokens`` for each prompt; for ``classify``, the token it draws."""
    if name is Capability.CLASSIFY:
        results = classify(subject, prompts, **options)
        return [sampled(row, prompt) for row, prompt in zip(results, prompts, strict=True)]
    if name is Capability.BATCH_GENERATE:
        rows = batch(subject, prompts, max_tokens, **options)
        return [answer(row, prompt) for row, prompt in zip(rows, prompts, strict=True)]
    return [generate(subject, prompt, max_tokens, **options) for prompt in prompts]


def equal_rows(
    subject: Subject, name: Capability, prompt: str, most: int, seconds: float, **options: Any
) -> list[Answer]:
    """Draw without a seed, as rows of one prompt: at most ``most``, as time allows."""
    size = max(_LEAST, int(seconds / budget.pass_seconds(subject)))
    end = time.perf_counter() + seconds
    answers: list[Answer] = []
    while len(answers) < most and (not answers or time.perf_counter() < end):
        answers += draw(subject, name, [prompt] * min(size, most - len(answers)), **options)
        size *= 2
    return answers
