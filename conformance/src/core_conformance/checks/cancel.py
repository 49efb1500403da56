"""Checks of stopping a request: by its cancel, by its timeout, by closing its stream."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from core.errors import GenerationCancelled, GenerationTimeout, UnsupportedOptionError
from core.protocols import Capability
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, speak
from core_conformance.checking.calls import (
    ENOUGH,
    PROMPTS,
    ROW_OPERATIONS,
    CancelAfter,
    already_set,
    declared,
    encoded_length,
    ending,
    greedy,
    greedy_options,
    longest,
    same,
    talkative,
    texts,
    unless_refused,
)
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.subject import Subject

_NEVER_READ = "This is where it ends, before it has begun"
_AT_ONCE = 1e-9  # seconds: over before anything can be done
_LOOKS = 6  # fewer than `ENOUGH` tokens: a model that continues for these is stopped before
_MANY = 200  # tokens
_LONG_PROMPT = 4096  # numbers
_ONE_CHUNK = 512  # tokens: a longer prompt is read in chunks
_TOO_SHORT = (
    f"the model's answers end before they can be cancelled: use a model that continues for "
    f"{ENOUGH} tokens, greedy"
)


@check(
    "cancel.before",
    "A request whose cancel is set already MUST raise GenerationCancelled and give no token.",
    SPEAKING,
)
def before(subject: Subject) -> None:
    with unless_refused("cancel"):
        end = _stopped(subject, _NEVER_READ, cancel=already_set())
        must(
            isinstance(end.error, GenerationCancelled) and not end.tokens,
            f"with a cancel that was set before, the stream gave {texts(end.tokens)} and ended "
            f"with {end.error!r}: expected GenerationCancelled",
        )


@check(
    "cancel.midway",
    "A cancel set while a stream runs MUST end it with GenerationCancelled at a token border.",
    SPEAKING,
)
def midway(subject: Subject) -> None:
    prompt, length = longest(subject)
    testable(length >= ENOUGH, _TOO_SHORT)

    # The cancel is set after the first token, and many more were requested.
    with unless_refused("cancel"):
        cancel = CancelAfter(_LOOKS)
        many = min(_MANY, subject.model.info.context_length // 2)
        stream = speak(subject, subject.model, prompt, max_tokens=many, cancel=cancel)

        # It ends with the error, and before all tokens were made.
        seen = 0
        try:
            for _ in stream:
                seen, cancel.now = seen + 1, True
        except GenerationCancelled:
            must(seen < many, f"the cancel was only polled once all {many} tokens were made")
            reason = stream.finish_reason
            must(reason == "cancelled", f"a cancelled stream has finish_reason {reason!r}")
            return

        must(
            False,
            f"a stream whose cancel was set gave {seen} tokens and ended normally "
            f"({stream.finish_reason!r}, {cancel.seen} polls): poll it before every token",
        )


@check(
    "cancel.prefill",
    "Cancel MUST be looked at between the chunks of a long prompt.",
    SPEAKING,
)
def prefill(subject: Subject) -> None:
    prompt, length = _long_prompt(subject)

    with unless_refused("cancel"):
        cancel = CancelAfter(2)  # not yet when the request begins
        end = _stopped(subject, prompt, cancel=cancel)
        if length <= _ONE_CHUNK and len(end.tokens) <= 1:
            # It may be read at once, and what it says is then there before the second look.
            must(
                isinstance(end.error, GenerationCancelled) or end.reason == "stop",
                f"a cancel that was set after the first look at it ended with {end.error!r}",
            )
            return

        must(
            isinstance(end.error, GenerationCancelled) and not end.tokens,
            f"a cancel that was set while a long prompt was read gave {texts(end.tokens)} and "
            f"{end.error!r}: read long prompts in chunks and look between them, and after the "
            "last one",
        )


@check(
    "cancel.rows",
    "With a cancel that is set already, every row MUST have GenerationCancelled as its error, and "
    'the finish_reason "cancelled".',
    ROW_OPERATIONS,
)
def rows(subject: Subject) -> None:
    for name in declared(subject, *ROW_OPERATIONS):
        with unless_refused("cancel"):
            _must_all_fail(subject, name, GenerationCancelled, cancel=already_set())


@check(
    "cancel.batch-midway",
    "A cancel set while a batch runs MUST end its unfinished rows, and leave the finished whole.",
    Capability.BATCH_GENERATE,
)
def batch_midway(subject: Subject) -> None:
    prompts = PROMPTS[:3]
    whole = subject.model.batch_generate(prompts, max_tokens=ENOUGH)
    goes_on(subject, [row.tokens for row in whole], Capability.BATCH_GENERATE)
    testable(max(len(row.tokens) for row in whole) >= ENOUGH, _TOO_SHORT)

    with unless_refused("cancel"):
        cancel = CancelAfter(_LOOKS)
        rows = subject.model.batch_generate(prompts, max_tokens=64, cancel=cancel)
        stopped = [row for row in rows if isinstance(row.error, GenerationCancelled)]
        must(bool(stopped), f"a cancel in the middle of a batch stopped no row: {rows}")

        # Each row has either finished or was cancelled.
        for row in rows:
            cancelled = row.finish_reason == "cancelled"
            must(
                cancelled == (row in stopped) and (cancelled or row.error is None),
                f"a row of a cancelled batch is neither finished nor cancelled: {row}",
            )


@check(
    "cancel.timeout",
    "A request that takes longer than its timeout MUST raise GenerationTimeout.",
    SPEAKING,
)
def timeout(subject: Subject) -> None:
    with unless_refused("timeout"):
        end = _stopped(subject, _NEVER_READ, timeout=_AT_ONCE)
        error = end.error
        must(
            isinstance(error, GenerationTimeout),
            f"timeout={_AT_ONCE} ended with {error!r} after {len(end.tokens)} tokens: it must "
            "be GenerationTimeout",
        )
        seconds = getattr(error, "seconds", None)
        must(seconds == _AT_ONCE, f"GenerationTimeout.seconds is {seconds}, not {_AT_ONCE}")


@check(
    "cancel.timeout-rows",
    "A row that takes longer than the timeout MUST have GenerationTimeout as its error, and the "
    'finish_reason "error".',
    ROW_OPERATIONS,
)
def timeout_rows(subject: Subject) -> None:
    for name in declared(subject, *ROW_OPERATIONS):
        with unless_refused("timeout"):
            _must_all_fail(subject, name, GenerationTimeout, timeout=_AT_ONCE)


@check(
    "cancel.unset",
    "A cancel that is never set and a timeout that is not reached MUST change nothing.",
    SPEAKING,
)
def unset(subject: Subject) -> None:
    prompt = talkative(subject)
    expected = greedy(subject, subject.model, prompt, 4)
    for option, value in (("cancel", threading.Event()), ("timeout", 86_400.0)):
        with unless_refused(option):
            options = {**greedy_options(subject, 4), option: value}
            tokens = list(speak(subject, subject.model, prompt, **options))
            must(
                same(subject, expected, tokens, prompt),
                f"with a {option} that does not come, the stream gave {texts(tokens)}, not "
                f"{texts(expected)}",
            )


@check(
    "cancel.works-after",
    "After a cancelled and a timed-out request the model MUST work as before.",
    SPEAKING,
)
def works_after(subject: Subject) -> None:
    prompt = talkative(subject)
    expected = greedy(subject, subject.model, prompt, 4)
    for options in ({"cancel": already_set()}, {"cancel": CancelAfter(3)}, {"timeout": _AT_ONCE}):
        with suppress(UnsupportedOptionError):
            _stopped(subject, prompt, **options)
        seen = ending(lambda: speak(subject, subject.model, prompt, **greedy_options(subject, 4)))
        must(
            seen.error is None and same(subject, expected, seen.tokens, prompt),
            f"after a request with {sorted(options)} was stopped, the next one gave "
            f"{seen.error or texts(seen.tokens)!r}, not {texts(expected)}",
        )


@check(
    "cancel.closed-stream",
    "Closing a stream MUST free what it holds: the next request gets its place.",
    SPEAKING,
)
def closed_stream(subject: Subject) -> None:
    prompt = talkative(subject)
    expected = greedy(subject, subject.model, prompt, 3)

    with subject.loaded(parallel_slots=1) as model:
        closed = [speak(subject, model, prompt, max_tokens=32) for _ in range(2)]
        for stream in closed:
            with suppress(StopIteration):
                next(stream)
            stream.close()

        # There is one slot, which the closed streams must have given back.
        seen = ending(lambda: speak(subject, model, prompt, **greedy_options(subject, 3)))
        must(
            seen.error is None and same(subject, expected, seen.tokens, prompt),
            "after streams were closed before their end, the next one gave "
            f"{seen.error or texts(seen.tokens)!r}, not {texts(expected)}: close() must give "
            "the slot back",
        )


def _stopped(subject: Subject, prompt: str, **options: Any) -> Any:
    """Read a request that is to be stopped to its end; a refusal of the option is raised."""
    many = min(64, subject.model.info.context_length // 4)
    end = ending(lambda: speak(subject, subject.model, prompt, max_tokens=many, **options))
    if isinstance(end.error, UnsupportedOptionError):
        raise end.error
    return end


def _long_prompt(subject: Subject) -> tuple[str, int]:
    """Return a prompt that fills most of the context, and how many tokens it has at least.

    Without a tokenizer to ask, numbers and blanks count for three tokens in the context, and for
    one in the prompt.
    """
    context = subject.model.info.context_length
    count = max(1, min(_LONG_PROMPT, context // 4))
    length = encoded_length(subject, _numbers(count))
    if length is None:
        return _numbers(count), count
    most = max(1, min(_LONG_PROMPT, count * (context * 5 // 8) // length))
    prompt = _numbers(most)
    return prompt, encoded_length(subject, prompt) or 0


def _numbers(count: int) -> str:
    return " ".join(str(number % 10) for number in range(count))


def _must_all_fail(
    subject: Subject, name: Capability, kind: type[Exception], **options: Any
) -> None:
    ask = getattr(subject.model, name.value)
    rows = ask(PROMPTS, **options)
    must(len(rows) == len(PROMPTS), f"{name}() of {len(PROMPTS)} prompts gave {len(rows)} rows")
    for row in rows:
        must(
            isinstance(row.error, kind),
            f"{name}() with {sorted(options)} gave a row with the error {row.error!r}: it must "
            f"be {kind.__name__}",
        )
        wanted = "cancelled" if kind is GenerationCancelled else "error"
        reason = getattr(row, "finish_reason", wanted)
        must(
            reason == wanted,
            f"a row of {name}() with {row.error!r} has finish_reason {reason!r}, not {wanted!r}",
        )
