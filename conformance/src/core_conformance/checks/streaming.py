"""Checks of streams: the tokens they hand out, when they work, and how they end."""

from __future__ import annotations

import itertools
import threading
import time
from functools import partial

from core.errors import GenerationCancelled
from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on, has_template
from core_conformance.checking.ask import (
    SPEAKING,
    begin,
    generate,
    is_token,
    read,
    speak,
    speaks,
    voice,
)
from core_conformance.checking.calls import ending, promptly
from core_conformance.checking.check import check, must
from core_conformance.checking.compare import same_speech
from core_conformance.checking.subject import Subject

_LOOKS = 10  # at an unread stream, this long apart
_PAUSE = 0.02
_LONG = 64  # tokens
_SOON = 0.3  # seconds after which a stream that has to wait does so


@check(
    "streaming.tokens",
    "A stream MUST yield core.Token with an int id below vocab_size, text, and no logprob unasked",
    SPEAKING,
)
def tokens_are_tokens(subject: Subject) -> None:
    speaks(subject, voice(subject))
    size = subject.model.info.vocab_size
    streams = [
        list(speak(subject, subject.model, prompt, max_tokens=4)) for prompt in ask.PLAIN[:2]
    ]
    for token in itertools.chain(*streams):
        must(
            is_token(token, size),
            f"a stream yielded {token!r}, not a core.Token with an int id from 0 to "
            f"{size - 1} and a str as text",
        )
        must(token.logprob is None, f"logprobs were not requested, but {token!r} has one")
    goes_on(subject, streams)


@check(
    "streaming.yields",
    "generate MUST yield what the model draws: at a very high temperature that is not always EOS",
    SPEAKING,
)
def draws_come_out(subject: Subject) -> None:
    answers = [generate(subject, p, 4, temperature=50.0) for p in ask.PLAIN]
    must(
        any(answer.tokens for answer in answers),
        f"{len(answers)} generations at temperature 50 had no token at all: tokens that "
        "are drawn must be yielded",
    )


class _Witness:
    """A cancel token that knows whether it was asked."""

    asked = False

    def is_set(self) -> bool:
        self.asked = True
        return False


@check(
    "streaming.lazy",
    "generate MUST NOT begin to work before the first next()",
    (Capability.GENERATE, Capability.CHAT),
)
def work_starts_at_next(subject: Subject) -> None:
    witness = _Witness()
    stream = speak(subject, subject.model, ask.PLAIN[0], max_tokens=4, cancel=witness)
    for _ in range(_LOOKS):  # work on another thread needs a moment to show
        time.sleep(_PAUSE)
        must(
            not witness.asked,
            "cancel.is_set() was asked before the first next(): work has begun at the call",
        )
    must(
        stream.finish_reason is None,
        f"an unread stream has finish_reason={stream.finish_reason!r}",
    )
    stream.close()


@check(
    "streaming.max-tokens",
    'max_tokens MUST be the number of tokens at which a generation ends with "length"',
    SPEAKING,
)
def max_tokens_counts(subject: Subject) -> None:
    speaks(subject, voice(subject))
    answers = []
    for limit in (1, 2, 5):
        for prompt in ask.PLAIN[:2]:
            answer = read(speak(subject, subject.model, prompt, max_tokens=limit))
            count, reason = len(answer.tokens), answer.finish_reason
            must(count <= limit, f"max_tokens={limit} gave {count} tokens")

            # A full answer ended for its length, a shorter one by itself.
            wanted = "length" if count == limit else "stop"
            must(
                reason == wanted,
                f"max_tokens={limit}, {count} tokens came: finish_reason is {reason!r}, "
                f"not {wanted!r}",
            )
            answers.append(answer.tokens)

    goes_on(subject, answers)


@check(
    "streaming.end",
    "finish_reason MUST be None until the end; after the end next() MUST raise StopIteration "
    "for good",
    SPEAKING,
)
def ends_for_good(subject: Subject) -> None:
    stream = speak(subject, subject.model, ask.PLAIN[0], max_tokens=3)
    before = stream.finish_reason
    must(before is None, f"finish_reason is {before!r} before the stream was read")
    list(stream)
    for _ in range(3):
        extra = next(stream, None)
        must(extra is None, f"a stream that had ended yielded {extra!r}")
    reason = stream.finish_reason
    must(
        reason in ("stop", "length"),
        f"a stream that was read to its end has finish_reason={reason!r}, not stop or length",
    )


@check(
    "streaming.close",
    "close() MUST end a stream cleanly at any time, twice too, and leave the model working",
    SPEAKING,
)
def close_ends(subject: Subject) -> None:
    prompt = ask.PLAIN[1]
    before = generate(subject, prompt, 4)
    for reads in (0, 1):
        stream = speak(subject, subject.model, prompt, max_tokens=64)
        for _ in range(reads):
            next(stream, None)
        stream.close()
        stream.close()
        extra = next(stream, None)
        must(extra is None, f"close() after {reads} tokens, and next() still gave {extra!r}")
    after = generate(subject, prompt, 4)
    same_speech(subject, [(before, after)], "before and after closing streams early")


@check(
    "streaming.close-after",
    "close() after a stream's end MUST leave it as it ended: its finish_reason, its metrics",
    SPEAKING,
)
def close_after_the_end(subject: Subject) -> None:
    for name in SPEAKING:
        if not subject.declares(name) or (name is Capability.CHAT and not has_template(subject)):
            continue
        stream = begin(name, subject.model, ask.PLAIN[1], {"max_tokens": 2})
        given = list(stream)
        ended = stream.finish_reason, stream.metrics
        stream.close()
        must(
            (stream.finish_reason, stream.metrics) == ended,
            f"{name} gave {len(given)} tokens and ended with {ended}; after close() that is "
            f"{(stream.finish_reason, stream.metrics)}",
        )


@check(
    "streaming.close-elsewhere",
    "A stream that one thread waits for MUST end there when another thread closes it, whether it "
    "runs or is queued after another",
    SPEAKING,
    broad=True,
)
def close_in_another_thread(subject: Subject) -> None:
    one_slot = {"parallel_slots": 1} if subject.declares(Capability.PARALLEL) else {}
    with subject.loaded(**one_slot) as model:
        stream = speak(subject, model, ask.PLAIN[1], max_tokens=_LONG)
        first = next(stream, None)
        waiting = speak(subject, model, ask.PLAIN[2], max_tokens=_LONG)
        timer = threading.Timer(_SOON, waiting.close)
        timer.start()
        what = "a stream queued after an open one, that another thread closed,"
        end = promptly(subject, partial(ending, lambda: waiting), what)
        timer.join()
        must(
            end.error is None or isinstance(end.error, GenerationCancelled),
            f"{what} raised {end.error!r} in the thread that waited for it",
        )
        rest = ending(lambda: stream)
        must(rest.error is None, f"the open stream then ended with {rest.error!r}")
    goes_on(subject, [[first] if first else []])
