"""Checks of metrics: the tokens and the seconds that a call says it took."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from core.protocols import Capability
from core.types import GenerateMetrics
from core_conformance.checking.calls import (
    PROMPTS,
    READING,
    ROW_OPERATIONS,
    call,
    declared,
    elsewhere,
    encoded_length,
    talkative,
)
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject

_ROUNDING = 1e-6  # seconds
_CLOCKS = 0.05  # seconds by which two clocks of one machine may differ
_MANY = [f"{prompt} {number}" for prompt in PROMPTS for number in range(4)]


@check(
    "metrics.prompt-tokens",
    "prompt_tokens MUST count the tokens of the prompt, those from a cache included.",
    Capability.GENERATE,
)
def prompt_tokens(subject: Subject) -> None:
    for prompt in (PROMPTS[3], PROMPTS[0], PROMPTS[0]):  # the second time perhaps from a cache
        stream = subject.model.generate(prompt, max_tokens=1)
        list(stream)
        _must_count(subject, stream.metrics, prompt)


@check(
    "metrics.rows",
    "The metrics of a call over rows MUST count the prompts of all of them, and exactly the tokens "
    "given: one per row in classify.",
    ROW_OPERATIONS,
)
def rows(subject: Subject) -> None:
    model: Any = subject.model
    for name in declared(subject, *ROW_OPERATIONS):
        options = {"max_tokens": 2} if name is Capability.BATCH_GENERATE else {}
        results = getattr(model, name.value)(_MANY, **options)
        counted = model.metrics.generated_tokens
        _must_count(subject, model.metrics, *_MANY)
        if name is Capability.BATCH_GENERATE:
            given = sum(len(row.tokens) for row in results)
        else:
            given = len(results)
        must(
            counted == given or (counted == 0 and subject.declares(Capability.LABEL_SENTENCES)),
            f"{name}() gave {given} tokens, and generated_tokens is {counted}",
        )


@check(
    "metrics.generated-tokens",
    "generated_tokens MUST be exactly the number of tokens that the stream gave: the one that "
    "ended it is not counted.",
    Capability.GENERATE,
)
def generated_tokens(subject: Subject) -> None:
    stream = subject.model.generate(talkative(subject), max_tokens=5)
    given, counted = len(list(stream)), stream.metrics.generated_tokens
    must(
        counted == given,
        f"the stream gave {given} tokens, and generated_tokens is {counted}",
    )


@check(
    "metrics.times",
    "Times MUST NOT be negative, prefill and decode MUST fit into the total, and that into the "
    "time until the caller had all.",
    READING,
)
def times(subject: Subject) -> None:
    model = subject.model
    for name in declared(subject, *READING):
        options: Any = {} if name is Capability.CLASSIFY else {"max_tokens": 3}
        begun = time.perf_counter()
        results: Any = call(model, name, **options)
        if name is Capability.GENERATE:
            list(results)
        _must_add_up(model.metrics, f"{name}()", time.perf_counter() - begun)


@check(
    "metrics.last-call",
    "`model.metrics` MUST be those of the last call that finished, not of one before.",
    (Capability.GENERATE, Capability.CLASSIFY, Capability.LABEL_SENTENCES),
)
def last_call(subject: Subject) -> None:
    model = subject.model
    if subject.declares(Capability.GENERATE):
        for prompt, tokens in ((PROMPTS[0], 3), (PROMPTS[3], 1)):
            stream = model.generate(prompt, max_tokens=tokens)
            list(stream)
            must(
                model.metrics == stream.metrics,
                f"after a stream ended, model.metrics is {model.metrics}, and the stream's are "
                f"{stream.metrics}",
            )
    if subject.classifies:
        for prompts in (PROMPTS, PROMPTS[:1]):
            model.classify(prompts)
            _must_count(subject, model.metrics, *prompts)


@check(
    "metrics.own-thread",
    "`model.metrics` MUST be of the calling thread: calls of other threads do not show in it.",
    READING,
)
def own_thread(subject: Subject) -> None:
    model = subject.model
    for name in declared(subject, *READING):
        _ask(model, name, PROMPTS[0])
        mine = model.metrics
        theirs = elsewhere(partial(_ask, model, name, PROMPTS[0] + PROMPTS[2]))

        must(
            model.metrics == mine,
            f"{name}() in another thread changed this thread's metrics from {mine} to "
            f"{model.metrics}",
        )
        must(
            theirs.prompt_tokens > mine.prompt_tokens,
            f"a thread whose {name}() read the longer prompt sees {theirs.prompt_tokens} "
            f"prompt_tokens; with the shorter one they are {mine.prompt_tokens}",
        )


@check(
    "metrics.stream-final",
    "A stream's metrics MUST be final once it has ended, whatever is asked next.",
    Capability.GENERATE,
)
def stream_final(subject: Subject) -> None:
    stream = subject.model.generate(PROMPTS[0], max_tokens=2)
    list(stream)
    before = stream.metrics
    list(subject.model.generate(PROMPTS[2] + PROMPTS[3], max_tokens=1))
    must(
        stream.metrics == before,
        f"the metrics of a stream that had ended changed from {before} to {stream.metrics} with "
        "the next call",
    )


def _ask(model: Any, name: Capability, prompt: str) -> GenerateMetrics:
    if name is Capability.CLASSIFY:
        model.classify([prompt])
    elif name is Capability.BATCH_GENERATE:
        model.batch_generate([prompt], max_tokens=1)
    else:
        list(model.generate(prompt, max_tokens=1))
    metrics: GenerateMetrics = model.metrics
    return metrics


def _must_count(subject: Subject, metrics: GenerateMetrics, *prompts: str) -> None:
    lengths = [encoded_length(subject, prompt) for prompt in prompts]
    expected = sum(length or 1 for length in lengths)  # without a tokenizer: one each, at least
    counted = metrics.prompt_tokens
    must(
        counted == expected if None not in lengths else counted >= expected,
        f"prompt_tokens is {counted} for {len(prompts)} prompts of {lengths} tokens",
    )
    must(
        0 <= metrics.cached_prompt_tokens <= counted,
        f"cached_prompt_tokens is {metrics.cached_prompt_tokens}, and prompt_tokens {counted}",
    )


def _must_add_up(metrics: GenerateMetrics, what: str, seconds: float) -> None:
    parts = (metrics.prefill_seconds, metrics.decode_seconds, metrics.total_seconds)
    must(min(parts) >= 0.0, f"{what} took negative time: {metrics}")
    must(
        parts[0] + parts[1] <= parts[2] + _ROUNDING,
        f"{what}: prefill {parts[0]} s and decode {parts[1]} s are more than the total of "
        f"{parts[2]} s",
    )
    must(
        parts[2] <= seconds + _CLOCKS,
        f"{what} took {seconds} s for its caller, and total_seconds is {parts[2]}",
    )
    must(
        parts[2] > 0.0,
        f"{what}: total_seconds is {parts[2]}, and something was computed: measure it",
    )
