"""Checks of batch_stream, classify_iter and submit: errors at the call, and when work begins.

cancel and timeout count in every operation that is another form of generate and classify.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from core.errors import (
    EmptyPromptError,
    GenerationCancelled,
    GenerationTimeout,
    InvalidOptionError,
    PromptTooLongError,
    UnsupportedOptionError,
)
from core.kit.support import OPTION_NEEDS
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    TemplateOptions,
)
from core.protocols import Capability, TokenStream
from core_conformance.checking import ask
from core_conformance.checking.ask import answer, batch, classify, evidence, sampled, speaks
from core_conformance.checking.calls import (
    CHAT,
    ENOUGH,
    PROMPTS,
    CancelAfter,
    already_set,
    close_quietly,
    declared,
    longest,
    must_raise,
    raised,
    unless_refused,
)
from core_conformance.checking.check import check, must
from core_conformance.checking.compare import same_answers
from core_conformance.checking.sizes import overlong, short_context
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.agreeing import gives
from core_conformance.checking.ways.table import every_way

_LOOKS = 10  # at an unread iterator, this long apart
_PAUSE = 0.02
_PATIENCE = 10.0  # seconds until work that runs by itself must show: not reached when it does
_OPTIONS: dict[str, Any] = {
    "labels": ("good", "bad"),
    "label_sentence": "It is {label}.",
    "return_logits": True,
    "return_logprobs": True,
    "seed": 1,
    "chat_template_kwargs": {"core_no_template_reads_this": True},
    "continue_final_message": True,
}
_CALLS: dict[Capability, tuple[str, Any]] = {
    Capability.GENERATE: ("generate", PROMPTS[0]),
    Capability.CHAT: ("chat", CHAT),
    Capability.SUBMITTING: ("submit", PROMPTS[0]),
    Capability.BATCH_GENERATE: ("batch_generate", PROMPTS[:1]),
    Capability.BATCH_STREAMING: ("batch_stream", PROMPTS[:1]),
    Capability.CLASSIFY: ("classify", PROMPTS[:1]),
    Capability.CLASSIFY_STREAMING: ("classify_iter", PROMPTS[:1]),
    Capability.TOKENIZING: ("render_chat", CHAT),
}
_KEYWORDS: dict[Capability, type] = {
    Capability.CHAT: ChatOptions,
    Capability.CLASSIFY: ClassifyOptions,
    Capability.CLASSIFY_STREAMING: ClassifyOptions,
    Capability.TOKENIZING: TemplateOptions,
}
_FORMS = (
    Capability.CHAT,
    Capability.SUBMITTING,
    Capability.BATCH_STREAMING,
    Capability.CLASSIFY_STREAMING,
    Capability.SCORING,
    Capability.TOKEN_PROMPTS,
    Capability.HIDDEN_STATES,
    Capability.ATTENTION_INSPECTOR,
)
_AT_ONCE = 1e-9  # seconds: over before anything can be done
_MANY = 16  # tokens
_FEW_TOKENS = 2048  # of a context that is soon exceeded


@check(
    "batch.stream-call",
    "batch_stream MUST raise at the call for a keyword that it does not know and for a wrong value",
    Capability.BATCH_STREAMING,
)
def batch_stream_checks_at_the_call(subject: Subject) -> None:
    model: Any = subject.model
    call = partial(model.batch_stream, PROMPTS[:1])
    _checks_at_the_call("batch_stream", call, "labels", "temperature")


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
    "A row of batch_stream that fails MUST give no more pairs; the error of the first that failed, "
    "by its number, comes after all the rows",
    Capability.BATCH_STREAMING,
    Capability.BATCH_GENERATE,
)
def batch_stream_errors_come_last(subject: Subject) -> None:
    good = ask.PLAIN[:2]
    whole = batch(subject, good, 3)
    with short_context(subject, _FEW_TOKENS) as model:
        long = overlong(model)
        # Shorter prompts may run first: the lower number counts, not who failed before.
        for kind, wrong in ((PromptTooLongError, (long, "")), (EmptyPromptError, ("", long))):
            prompts = [good[0], wrong[0], good[1], wrong[1]]
            rows: dict[int, list[Any]] = {row: [] for row in range(4)}
            what = f"batch_stream, of whose rows {kind.__name__} is the first error,"
            must_raise(kind, partial(_read_rows, subject, model, prompts, rows), what)
            must(not rows[1] + rows[3], f"rows that failed gave {rows[1] + rows[3]}")
            for place, prompt, result in zip((0, 2), good, whole, strict=True):
                streamed = type(result)(tuple(rows[place]), result.finish_reason)
                pair = (answer(result, prompt), answer(streamed, prompt))
                what = "batch_generate, and batch_stream alongside rows that fail"
                same_answers(subject, [pair], what)


def _read_rows(
    subject: Subject, model: Any, prompts: list[str], rows: dict[int, list[Any]]
) -> None:
    for row, token in model.batch_stream(prompts, max_tokens=3, **evidence(subject)):
        rows[row].append(token)


@check(
    "classify.stream-call",
    "classify_iter MUST raise at the call for a keyword that it does not know and a wrong value",
    Capability.CLASSIFY_STREAMING,
)
def classify_iter_checks_at_the_call(subject: Subject) -> None:
    model: Any = subject.model
    call = partial(model.classify_iter, PROMPTS[:1])
    _checks_at_the_call("classify_iter", call, "max_tokens", "temperature")


@check(
    "classify.stream-errors",
    "An error in one prompt of classify_iter MUST be its result's error; the others finish",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
)
def classify_iter_errors_stay_with_their_prompts(subject: Subject) -> None:
    model: Any = subject.model
    good = ask.PLAIN[:2]
    alone = classify(subject, good, **evidence(subject))
    rows = list(model.classify_iter(iter([good[0], "", good[1]]), **evidence(subject)))
    must(len(rows) == 3, f"three prompts, one of them empty, gave {len(rows)} results")
    must(
        isinstance(rows[1].error, EmptyPromptError) and rows[1].token is None,
        f"the result of an empty prompt has error={rows[1].error!r} and token={rows[1].token!r}",
    )
    for prompt, left, right in zip(good, alone, (rows[0], rows[2]), strict=True):
        must(right.error is None, f"a result next to an empty prompt failed: {right.error!r}")
        pair = (sampled(left, prompt), sampled(right, prompt))
        same_answers(subject, [pair], "classify, and classify_iter next to an empty prompt")


@check(
    "scoring.call",
    "score MUST raise at the call for a keyword that it does not know and for a wrong value",
    Capability.SCORING,
)
def score_checks_at_the_call(subject: Subject) -> None:
    model: Any = subject.model
    call = partial(model.score, PROMPTS[:1], ["good"])
    with unless_refused("timeout"):
        _checks_at_the_call("score", call, "temperature", "timeout")


@check(
    "tokens.call",
    "generate_tokens, stream_tokens and score_tokens MUST raise at the call for a keyword that "
    "they do not know and for a wrong value",
    Capability.TOKEN_PROMPTS,
)
def token_prompts_check_at_the_call(subject: Subject) -> None:
    model: Any = subject.model
    _checks_at_the_call(
        "generate_tokens", partial(model.generate_tokens, [1, 2]), "labels", "temperature"
    )
    _checks_at_the_call(
        "stream_tokens", partial(model.stream_tokens, [1, 2]), "labels", "temperature"
    )
    with unless_refused("timeout"):
        call = partial(model.score_tokens, [[1]], [[2]])
        _checks_at_the_call("score_tokens", call, "temperature", "timeout")


@check(
    "hidden.call",
    "hidden_states MUST raise at the call for a keyword that it does not know and for a wrong "
    "value",
    Capability.HIDDEN_STATES,
)
def hidden_states_checks_at_the_call(subject: Subject) -> None:
    model: Any = subject.model
    call = partial(model.hidden_states, PROMPTS[:1])
    with unless_refused("timeout"):
        _checks_at_the_call("hidden_states", call, "temperature", "timeout")


@check(
    "inspection.call",
    "inspect_attention MUST raise for a keyword that it does not know and for a wrong value",
    Capability.ATTENTION_INSPECTOR,
)
def inspect_attention_checks_at_the_call(subject: Subject) -> None:
    model: Any = subject.model
    call = partial(model.inspect_attention, PROMPTS[0])
    with unless_refused("timeout"):
        _checks_at_the_call("inspect_attention", call, "temperature", "timeout")


@check(
    "submitting.begins",
    "submit MUST begin at the call and continue, whether or not its stream is read",
    Capability.SUBMITTING,
)
def submit_does_not_wait_for_a_reader(subject: Subject) -> None:
    model: Any = subject.model
    speaks(subject, Capability.SUBMITTING)
    prompt, length = longest(subject)
    looks = 4 if length == ENOUGH else 1  # it is polled before every token
    witness = CancelAfter(2**31)

    # The request polls its cancel while it runs, which shows that work has begun.
    with unless_refused("cancel"):
        stream = model.submit(prompt, GenerateConfig(max_tokens=ENOUGH, cancel=witness))
        deadline = time.monotonic() + _PATIENCE
        while witness.seen < looks and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        seen = witness.seen

        close_quietly(stream)
        must(
            seen >= looks,
            f"the cancel of an unread submitted request was polled {seen} times in "
            f"{_PATIENCE:g} s, expected {looks}: begin at the call, without waiting for a reader",
        )


@check(
    "errors.undeclared-options",
    "Every operation MUST refuse, at the call, an option whose capability is not declared, and "
    "take one whose capability is",
)
def undeclared_options_are_refused(subject: Subject) -> None:
    for option, need in OPTION_NEEDS.items():
        for name in declared(subject, *_CALLS, Capability.LABEL_SENTENCES):
            if option in _KEYWORDS.get(name, GenerateOptions).__annotations__:
                config = GenerateConfig(max_tokens=1, **{option: _OPTIONS[option]})
                method, given = _CALLS[name]
                call = partial(getattr(subject.model, method), given, config)
                verify = _must_take if subject.declares(need) else _must_refuse
                verify(call, method, option)


def _must_take(call: Callable[[], object], method: str, option: str) -> None:
    error = raised(lambda: close_quietly(cast("TokenStream", call())))
    must(
        not isinstance(error, UnsupportedOptionError),
        f"{method} with {option}, which is declared, raised {error!r}",
    )


def _must_refuse(call: Callable[[], object], method: str, option: str) -> None:
    what = f"{method} with {option}, which is not declared,"
    error: Any = must_raise(UnsupportedOptionError, call, what)
    must(
        error.option == option, f"{what} was refused under the wrong option name: {error.option!r}"
    )


def _checks_at_the_call(name: str, call: Callable[..., object], foreign: str, known: str) -> None:
    for option in ("no_such_option", foreign):
        must_raise(TypeError, partial(call, **{option: 1}), f"{name}({option}=1)")
    what = f"{name}({known}=-1.0)"
    must_raise(InvalidOptionError, partial(call, **{known: -1.0}), what)


@check(
    "cancel.every-operation",
    "A cancel that is set already MUST stop chat, submit, batch_stream, classify_iter, score, "
    "generate_tokens, stream_tokens, score_tokens, hidden_states and inspect_attention as well, "
    "called and awaited.",
    _FORMS,
)
def cancel(subject: Subject) -> None:
    with unless_refused("cancel"):
        _must_stop(subject, GenerationCancelled, cancel=already_set())


@check(
    "cancel.timeout-every-operation",
    "timeout MUST stop chat, submit, batch_stream, classify_iter, score, generate_tokens, "
    "stream_tokens, score_tokens, hidden_states and inspect_attention as well, called and awaited.",
    _FORMS,
)
def timeout(subject: Subject) -> None:
    with unless_refused("timeout"):
        _must_stop(subject, GenerationTimeout, timeout=_AT_ONCE)


def _must_stop(subject: Subject, kind: type[Exception], **options: Any) -> None:
    for way in every_way(subject):
        request = way.options(subject, _MANY) | options
        for row in gives(subject, way, subject.model, PROMPTS[:2], request):
            must(
                isinstance(row.error, kind),
                f"{way.name} with {sorted(options)} ended with {row.error!r}: expected "
                f"{kind.__name__}",
            )
