"""Checks of what an option means at its edges, where docs/options.md is all that says it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from core.errors import (
    GenerationCancelled,
    GenerationTimeout,
    ModelClosedError,
    PromptTooLongError,
    RequestError,
)
from core.extensions import BatchStreaming, ClassifyStreaming, Scoring
from core.protocols import Capability, TextModel, TokenStream
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, classify, scoring, speak, speaks, tokenizing
from core_conformance.checking.check import check, must, testable, well_formed
from core_conformance.checking.compare import label_logprobs
from core_conformance.checking.sizes import overlong, short_context
from core_conformance.checking.subject import Subject

_TIMES, _LEAST_SECONDS, _MOST_SECONDS = 5, 0.5, 20.0  # a limit: of what first tokens took
_PATIENCE = 6  # times that limit, which a busy machine does not reach
_FEW_TOKENS = 1024
Lazy = tuple[Capability, Callable[[float | None], Iterator[Any]]]
_BEYOND = " and a bird" * 12


@check(
    "streaming.reasons",
    'finish_reason MUST be "cancelled" after close() and after a cancel, "error" after a '
    "timeout and after the close of the model",
    SPEAKING,
)
def reasons(subject: Subject) -> None:
    def closed(stream: TokenStream) -> None:
        stream.close()
        must(list(stream) == [], "a stream that was closed gave more tokens")

    cancel = threading.Event()
    cancelled = speak(subject, subject.model, ask.PLAIN[0], max_tokens=64, cancel=cancel)
    begun = _begun(subject, cancelled)
    cancel.set()
    _ends(cancelled, GenerationCancelled, "cancelled", "its cancel was set", begun)

    for number in range(2):
        stream = speak(subject, subject.model, ask.PLAIN[0], max_tokens=64)
        begun = bool(number) and _begun(subject, stream)
        own = stream.finish_reason if begun else None  # one that works ahead may be at its end
        closed(stream)
        must(
            stream.finish_reason == (own or "cancelled"),
            f"a stream that was closed {'midway' if begun else 'before its first token'} has "
            f"finish_reason={stream.finish_reason!r}, not 'cancelled'",
        )

    late = speak(subject, subject.model, ask.PLAIN[0], max_tokens=64, timeout=1e-9)
    _ends(late, GenerationTimeout, "error", "its time was up", True)
    with subject.loaded() as model:
        orphan = speak(subject, model, ask.PLAIN[0], max_tokens=64)
        begun = _begun(subject, orphan)
    _ends(orphan, ModelClosedError, "error", "its model was closed", begun)


def _begun(subject: Subject, stream: TokenStream) -> bool:
    """Take a first token; whether there was one."""
    first = next(stream, None)
    goes_on(subject, [[first] if first else []])
    return first is not None


def _ends(stream: TokenStream, error: type[Exception], reason: str, what: str, begun: bool) -> None:
    """See how a stream ends that was stopped, unless it had come to its own end before."""
    try:
        for _ in stream:
            pass
    except error:
        must(
            stream.finish_reason == reason,
            f"a stream whose {error.__name__} came because {what} has "
            f"finish_reason={stream.finish_reason!r}, not {reason!r}",
        )
    else:
        whole = ("stop", "length") if begun else ()
        must(
            stream.finish_reason in whole,
            f"a stream ended without {error.__name__} although {what}, and says "
            f"finish_reason={stream.finish_reason!r}",
        )


@check(
    "cancel.timeout-begins",
    "timeout MUST begin with the work: at the first next() of a stream or iterator, not before",
    (Capability.GENERATE, Capability.BATCH_STREAMING, Capability.CLASSIFY_STREAMING),
    broad=True,  # it sleeps
)
def timeouts_begin_with_the_work(subject: Subject) -> None:
    ways = list(_lazy(subject))
    if subject.declares(Capability.GENERATE):
        speaks(subject, Capability.GENERATE)

    start = time.monotonic()
    for _, begin in ways:
        _first(begin(None))
    shortest = max(_LEAST_SECONDS, _TIMES * (time.monotonic() - start))
    testable(
        shortest <= _MOST_SECONDS,
        f"the first tokens take {shortest / _TIMES:.1f} s on this model: use a faster model",
    )

    # A machine that is busy for a moment is late for a short limit, and not for a long one.
    late, limit = _late(ways, shortest), shortest
    if late:
        limit *= _PATIENCE
        late = _late(ways, limit)
    must(
        not late,
        f"{late} with timeout={limit:.1f} were first read {limit * 1.1:.1f} s after the call, and "
        "had timed out: start the timeout with the work",
    )


def _late(ways: Sequence[Lazy], limit: float) -> list[str]:
    """Return the operations whose timeout is over when they are first read, after ``limit``.

    All wait at once. One that stays begun holds its slot.
    """
    waiting = [(name, begin(limit)) for name, begin in ways]
    time.sleep(limit * 1.1)
    late = []
    while waiting:
        name, results = waiting.pop(0)
        try:
            outcome = _first(results)
        except GenerationTimeout as error:
            outcome = error
        if isinstance(getattr(outcome, "error", outcome), GenerationTimeout):
            late.append(str(name))
    return late


def _first(results: Iterator[Any]) -> Any:
    """Return the first item of an iterator, and close it if it has close()."""
    first = next(results, None)
    getattr(results, "close", lambda: None)()
    return first


def _lazy(subject: Subject) -> Iterator[Lazy]:
    """Yield the operations that work when they are read, by name."""
    model: Any = subject.model
    prompt = ask.PLAIN[0]

    if subject.declares(Capability.GENERATE):
        yield Capability.GENERATE, lambda limit: model.generate(prompt, max_tokens=1, timeout=limit)
    if subject.declares(Capability.BATCH_STREAMING):
        batches = cast("BatchStreaming", model)
        yield (
            Capability.BATCH_STREAMING,
            lambda limit: batches.batch_stream([prompt], max_tokens=1, timeout=limit),
        )
    if subject.declares(Capability.CLASSIFY_STREAMING):
        rows = cast("ClassifyStreaming", model)
        yield (
            Capability.CLASSIFY_STREAMING,
            lambda limit: rows.classify_iter([prompt], timeout=limit),
        )


@check(
    "scoring.empty",
    "An empty continuation MUST be a RequestError in its row, and hurt no other",
    Capability.SCORING,
)
def empty_continuations(subject: Subject) -> None:
    prompts, tails = ask.PLAIN[:3], (" and", "", " the")
    scores = scoring(subject).score(prompts, tails)
    must(len(scores) == len(prompts), f"score of {len(prompts)} pairs gave {len(scores)} scores")
    must(
        isinstance(scores[1].error, RequestError),
        f"the score of an empty continuation has the error {scores[1].error!r}, not a RequestError",
    )
    for place in (0, 2):
        must(
            scores[place].error is None and bool(scores[place].token_logprobs),
            f"alongside an empty continuation, {tails[place]!r} got {scores[place]!r}",
        )


@check(
    "scoring.too-long",
    "A pair that the context does not hold MUST be its row's PromptTooLongError, whichever of the "
    "two is too long, and hurt no other",
    Capability.SCORING,
    broad=True,
)
def pairs_without_room(subject: Subject) -> None:
    with short_context(subject, _FEW_TOKENS) as model:
        long, short = overlong(model), ask.PLAIN[0]
        scores = cast("Scoring", model).score([long, short, short], [" and", " " + long, " and"])
    for score, what in zip(scores[:2], ("prompt", "continuation"), strict=True):
        must(
            isinstance(score.error, PromptTooLongError),
            f"a {what} longer than the context has the error {score.error!r} and the logprob "
            f"{score.logprob}: expected PromptTooLongError",
        )
    must(
        scores[2].error is None and bool(scores[2].token_logprobs),
        f"alongside pairs that are too long, a short one got {scores[2]!r}",
    )


@check(
    "labels.too-long",
    "A label for which the context has no room after a prompt MUST hurt no other row, and be "
    "that row's PromptTooLongError where it is refused",
    Capability.CLASSIFY,
    Capability.LABELS,
    Capability.TOKENIZING,
)
def labels_without_room(subject: Subject) -> None:
    with short_context(subject, _FEW_TOKENS) as model:
        _labels_without_room(subject, model)


def _labels_without_room(subject: Subject, model: TextModel) -> None:
    encode, limit = tokenizing(subject).encode, model.info.context_length
    well_formed(bool(encode(ask.PLAIN[0])), f"encode() has no ids for {ask.PLAIN[0]!r}")
    word = ask.PLAIN[0].rpartition(" ")[2]
    step = max(1, len(encode(f"{word} {word} {word}")) - len(encode(f"{word} {word}")))
    words = limit // step + 2
    testable(
        words < 5000, "the context is too long to fill: load the model with a smaller context_len"
    )
    prompt = " ".join([word] * words)
    while words > 1 and len(encode(prompt)) > limit:
        words -= 1 + (len(encode(prompt)) - limit) // (2 * step)
        prompt = " ".join([word] * words)

    labels = (ask.LABELS[0], ask.LABELS[1] + _BEYOND)
    room = len(encode(prompt + " " + labels[1])) > limit + 3
    testable(room, "no prompt was found that fills the context")
    full, short = model.classify([prompt, ask.PLAIN[0]], labels=labels)
    must(
        full.error is None or isinstance(full.error, PromptTooLongError),
        f"a prompt of {len(encode(prompt))} tokens with a label that goes beyond the context of "
        f"{limit} gave {full.label!r} and the error {full.error!r}, not a PromptTooLongError",
    )
    must(
        (full.error is None) == (full.label in labels),
        f"it gave {full!r}: it must have one of its labels, or an error",
    )
    must(short.error is None, f"alongside it, a short prompt has the error {short.error!r}")


@check(
    "metrics.failed-rows",
    "A row whose prompt is refused MUST count no token in the metrics of its call",
    (Capability.CLASSIFY, Capability.BATCH_GENERATE),
)
def failed_rows_count_nothing(subject: Subject) -> None:
    model, prompts = subject.model, ask.PLAIN[:2]
    for name in (Capability.CLASSIFY, Capability.BATCH_GENERATE):
        if not subject.declares(name):
            continue
        options: dict[str, int] = {} if name is Capability.CLASSIFY else {"max_tokens": 2}

        getattr(model, name)(list(prompts), **options)
        sound = model.metrics
        must(
            sound.prompt_tokens >= len(prompts),
            f"{name} of {len(prompts)} prompts counts {sound.prompt_tokens} prompt tokens",
        )

        getattr(model, name)([prompts[0], "", prompts[1], ""], **options)
        mixed = model.metrics
        must(
            (mixed.prompt_tokens, mixed.generated_tokens)
            == (sound.prompt_tokens, sound.generated_tokens),
            f"{name} counts {mixed.prompt_tokens} prompt tokens and {mixed.generated_tokens} "
            f"generated ones where two prompts were empty, and without those "
            f"{sound.prompt_tokens} and {sound.generated_tokens}",
        )


@check(
    "labels.after-failed",
    "A row that fails MUST NOT keep labels from the rows after it",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def labels_after_failed_rows(subject: Subject) -> None:
    alone = classify(subject, ask.PLAIN[:2], labels=ask.LABELS)
    mixed = subject.model.classify(["", ask.PLAIN[0], "", ask.PLAIN[1]], labels=ask.LABELS)
    for prompt, one, other in zip(ask.PLAIN, alone, mixed[1::2], strict=False):
        label_logprobs(one)
        must(
            other.error is None and set(other.probabilities or ()) == set(one.probabilities or ()),
            f"after an empty prompt, {prompt!r} got {other!r}",
        )
