"""batch_stream, classify_iter and submit: what is checked at the call, and when work begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from core.capability import Capability
from core.errors import EmptyPromptError, InvalidOptionError, UnsupportedOptionError
from core.options import ClassifyOptions, GenerateConfig, GenerateOptions
from core.support import OPTION_NEEDS
from core_conformance import prompts
from core_conformance.answers import answer, batch, classify, evidence, sampled
from core_conformance.calls import (
    CHAT,
    ENOUGH,
    PROMPTS,
    CancelAfter,
    close_quietly,
    declared,
    longest,
    must_raise,
    unless_refused,
)
from core_conformance.model import must
from core_conformance.registry import check
from core_conformance.relations import same_answers
from core_conformance.speaking import speaks
from core_conformance.subject import Subject

_LOOKS = 10  # at an iterator that nobody reads, this long apart
_PAUSE = 0.02
_PATIENCE = 10.0  # seconds until work that goes on by itself must show: never reached when it does
_OPTIONS: dict[str, Any] = {
    "labels": ("good", "bad"),
    "return_logits": True,
    "return_logprobs": True,
    "seed": 1,
}
_CALLS: dict[Capability, tuple[str, Any]] = {
    Capability.GENERATE: ("generate", PROMPTS[0]),
    Capability.CHAT: ("chat", CHAT),
    Capability.SUBMITTING: ("submit", PROMPTS[0]),
    Capability.BATCH_GENERATE: ("batch_generate", PROMPTS[:1]),
    Capability.BATCH_STREAMING: ("batch_stream", PROMPTS[:1]),
    Capability.CLASSIFY: ("classify", PROMPTS[:1]),
    Capability.CLASSIFY_STREAMING: ("classify_iter", PROMPTS[:1]),
}


@check(
    "batch.stream-call",
    "batch_stream MUST raise at the call for a keyword that it does not know and for a wrong value",
    Capability.BATCH_STREAMING,
)
def batch_stream_checks_at_the_call(subject: Subject) -> None:
    model: Any = subject.model
    _checks_at_the_call("batch_stream", partial(model.batch_stream, PROMPTS[:1]), "labels")


@check(
    "batch.stream-lazy",
    "batch_stream MUST NOT begin to work before the first next()",
    Capability.BATCH_STREAMING,
)
def batch_stream_is_lazy(subject: Subject) -> None:
    model: Any = subject.model
    witness = CancelAfter(2**31)
    with unless_refused("cancel"):
        stream = model.batch_stream(PROMPTS[:2], max_tokens=2, cancel=witness)
        for _ in range(_LOOKS):  # work on another thread needs a moment to show
            time.sleep(_PAUSE)
            must(
                not witness.seen,
                "batch_stream asked cancel.is_set() before the first next(): work has begun",
            )
        list(stream)
        must(witness.seen > 0, "batch_stream was read to its end and never asked cancel.is_set()")


@check(
    "batch.stream-errors",
    "A row of batch_stream that fails MUST give no more pairs; its error comes after all the rows",
    Capability.BATCH_STREAMING,
    Capability.BATCH_GENERATE,
)
def batch_stream_errors_come_last(subject: Subject) -> None:
    model: Any = subject.model
    good = prompts.PLAIN[:2]
    whole = batch(subject, good, 3)
    rows: dict[int, list[Any]] = {0: [], 1: [], 2: []}

    def run() -> None:
        asked = [good[0], "", good[1]]
        for row, token in model.batch_stream(asked, max_tokens=3, **evidence(subject)):
            rows[row].append(token)

    must_raise(EmptyPromptError, run, "batch_stream with an empty prompt in row 1, read to its end")
    must(not rows[1], f"the row of an empty prompt gave {rows[1]}")
    for place, prompt, result in zip((0, 2), good, whole, strict=True):
        found = type(result)(tuple(rows[place]), result.finish_reason)
        pair = (answer(result, prompt), answer(found, prompt))
        same_answers(subject, [pair], "batch_generate, and batch_stream beside an empty prompt")


@check(
    "classify.stream-call",
    "classify_iter MUST raise at the call for a keyword that it does not know and a wrong value",
    Capability.CLASSIFY_STREAMING,
)
def classify_iter_checks_at_the_call(subject: Subject) -> None:
    model: Any = subject.model
    _checks_at_the_call("classify_iter", partial(model.classify_iter, PROMPTS[:1]), "max_tokens")


@check(
    "classify.stream-errors",
    "What is wrong with one prompt of classify_iter MUST be its result's error; the others finish",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
)
def classify_iter_errors_stay_with_their_prompts(subject: Subject) -> None:
    model: Any = subject.model
    good = prompts.PLAIN[:2]
    alone = classify(subject, good, **evidence(subject))
    found = list(model.classify_iter(iter([good[0], "", good[1]]), **evidence(subject)))
    must(len(found) == 3, f"three prompts, one of them empty, gave {len(found)} results")
    must(
        isinstance(found[1].error, EmptyPromptError) and found[1].token is None,
        f"the result of an empty prompt has error={found[1].error!r} and token={found[1].token!r}",
    )
    for prompt, left, right in zip(good, alone, (found[0], found[2]), strict=True):
        must(right.error is None, f"a result next to an empty prompt failed: {right.error!r}")
        pair = (sampled(left, prompt), sampled(right, prompt))
        same_answers(subject, [pair], "classify, and classify_iter next to an empty prompt")


@check(
    "submitting.begins",
    "submit MUST begin at the call and go on, whether or not its stream is read",
    Capability.SUBMITTING,
)
def submit_does_not_wait_for_a_reader(subject: Subject) -> None:
    model: Any = subject.model
    speaks(subject, Capability.SUBMITTING)
    prompt, length = longest(subject)
    looks = 4 if length == ENOUGH else 1  # it is looked at before every token
    witness = CancelAfter(2**31)
    with unless_refused("cancel"):
        stream = model.submit(prompt, GenerateConfig(max_tokens=ENOUGH, cancel=witness))
        deadline = time.monotonic() + _PATIENCE
        while witness.seen < looks and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        seen = witness.seen
        close_quietly(stream)
        must(
            seen >= looks,
            f"nobody read a submitted request, and its cancel was looked at {seen} times in "
            f"{_PATIENCE:g} s, not {looks}: begin at the call, and do not wait for the reader",
        )


@check(
    "errors.undeclared-options",
    "Every operation MUST refuse, at the call, an option whose capability is not declared",
)
def undeclared_options_are_refused(subject: Subject) -> None:
    for option, need in OPTION_NEEDS.items():
        if subject.declares(need):
            continue
        for name in declared(subject, *_CALLS):
            classifies = name in (Capability.CLASSIFY, Capability.CLASSIFY_STREAMING)
            known = ClassifyOptions if classifies else GenerateOptions
            if option in known.__annotations__:
                _must_refuse(subject, name, option)


def _must_refuse(subject: Subject, name: Capability, option: str) -> None:
    config = GenerateConfig(**{option: _OPTIONS[option]})
    method, given = _CALLS[name]
    call = partial(getattr(subject.model, method), given, config)
    what = f"{method} with {option}, which is not declared,"
    error: Any = must_raise(UnsupportedOptionError, call, what)
    must(error.option == option, f"{what} was refused under another name: {error.option!r}")


def _checks_at_the_call(name: str, call: Callable[..., object], foreign: str) -> None:
    for option in ("no_such_option", foreign):
        must_raise(TypeError, partial(call, **{option: 1}), f"{name}({option}=1)")
    what = f"{name}(temperature=-1.0)"
    must_raise(InvalidOptionError, partial(call, temperature=-1.0), what)
