"""Checks of metrics after the forms that stream: read to their end, and left before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from core.options import GenerateConfig
from core.protocols import Capability, TokenStream
from core.types import GenerateMetrics
from core_conformance.checking.applies import goes_on, has_template
from core_conformance.checking.ask import tokenizing
from core_conformance.checking.calls import CHAT, PROMPTS, encoded_length, talkative
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.subject import Subject

_STREAMS = (Capability.GENERATE, Capability.SUBMITTING, Capability.CHAT)
_LENGTH = 6
Open = Callable[[], TokenStream]


@check(
    "metrics.streams",
    "The metrics after chat and submit MUST count their prompt and exactly the tokens given, and "
    "be those of the model once the stream was read.",
    _STREAMS[1:],
    broad=True,
)
def streams_count_their_tokens(subject: Subject) -> None:
    streams = list(_streams(subject, _STREAMS[1:]))
    testable(bool(streams), "the model has no chat template: use a model that has one")
    for name, length, open_stream in streams:
        _ask_something_else(subject)
        stream = open_stream()
        given = len(list(stream))
        metrics = stream.metrics

        _counts(metrics, (length,), f"{name} read to its end")
        must(
            given == metrics.generated_tokens,
            f"{name} gave {given} tokens, and generated_tokens is {metrics.generated_tokens}",
        )
        must(
            subject.model.metrics == metrics,
            f"{name} was read to its end: its metrics are {metrics}, and those of the model "
            f"{subject.model.metrics}",
        )


@check(
    "metrics.abandoned",
    "A stream that is closed before its end MUST have metrics of what it did, as the model's too.",
    _STREAMS,
    broad=True,
)
def closed_streams_count_what_they_did(subject: Subject) -> None:
    begun = []
    for name, length, open_stream in _streams(subject, _STREAMS):
        _ask_something_else(subject)
        stream = open_stream()
        begun.append([token for token, _ in zip(stream, range(2), strict=False)])
        stream.close()

        given, metrics = len(begun[-1]), stream.metrics
        if not given:
            continue

        _counts(metrics, (length,), f"{name}, closed after {given} tokens,")
        must(
            given <= metrics.generated_tokens <= _LENGTH + 1,
            f"{name} was closed after {given} of at most {_LENGTH} tokens, and generated_tokens "
            f"is {metrics.generated_tokens}",
        )
        must(
            subject.model.metrics == metrics and stream.metrics == metrics,
            f"{name} was closed after {given} tokens: its metrics are {metrics}, and those of the "
            f"model {subject.model.metrics}",
        )

    goes_on(subject, begun)


@check(
    "metrics.row-streams",
    "The metrics of batch_stream and classify_iter MUST count all rows that were given, and "
    "exactly the tokens, once they were read to their end.",
    (Capability.BATCH_STREAMING, Capability.CLASSIFY_STREAMING),
    broad=True,
)
def streams_of_rows_count_their_rows(subject: Subject) -> None:
    model: Any = subject.model
    lengths = [encoded_length(subject, prompt) for prompt in PROMPTS]
    for name, rows in _row_streams(subject):
        _ask_something_else(subject)
        given = len(list(rows()))
        _counts(model.metrics, lengths, f"{name} of {len(PROMPTS)} prompts")
        counted = model.metrics.generated_tokens
        must(
            counted == given or (counted == 0 and not _generates(subject, name)),
            f"{name} gave {given} tokens, and generated_tokens is {counted}",
        )


@check(
    "metrics.abandoned-rows",
    "A batch_stream or classify_iter that is closed early MUST have metrics of its own.",
    (Capability.BATCH_STREAMING, Capability.CLASSIFY_STREAMING),
    broad=True,
)
def closed_streams_of_rows_count_what_they_did(subject: Subject) -> None:
    model: Any = subject.model
    lengths = [encoded_length(subject, prompt) for prompt in PROMPTS]
    most = sum(length or 10**9 for length in lengths)

    for name, rows in _row_streams(subject):
        _ask_something_else(subject)
        before, stream = model.metrics, rows()
        first = next(stream, None)
        stream.close()
        if first is None:
            continue

        metrics = model.metrics
        must(
            metrics != before
            and 0 < metrics.prompt_tokens <= most
            and (metrics.generated_tokens > 0 or not _generates(subject, name)),
            f"{name} of {len(PROMPTS)} prompts of {lengths} tokens was closed after {first!r}: "
            f"the metrics are {metrics}; of the call before they were {before}",
        )


def _streams(
    subject: Subject, names: Sequence[Capability]
) -> Iterator[tuple[str, int | None, Open]]:
    """Yield each of these forms: its name, its prompt's tokens if known, and the call."""
    model: Any = subject.model
    prompt = talkative(subject) if subject.declares(Capability.GENERATE) else PROMPTS[0]

    for name in filter(subject.declares, names):
        if name is Capability.CHAT:
            if not has_template(subject):
                continue
            shown = subject.declares(Capability.TOKENIZING)
            length = (
                encoded_length(subject, tokenizing(subject).render_chat(CHAT)) if shown else None
            )
            yield "chat", length, lambda: model.chat(CHAT, max_tokens=_LENGTH)
        elif name is Capability.SUBMITTING:
            length = encoded_length(subject, prompt)
            yield "submit", length, lambda: model.submit(prompt, GenerateConfig(max_tokens=_LENGTH))
        else:
            length = encoded_length(subject, prompt)
            yield "generate", length, lambda: model.generate(prompt, max_tokens=_LENGTH)


def _row_streams(subject: Subject) -> Iterator[tuple[str, Callable[[], Any]]]:
    model: Any = subject.model
    if subject.declares(Capability.BATCH_STREAMING):
        yield "batch_stream", lambda: model.batch_stream(PROMPTS, max_tokens=_LENGTH)
    if subject.declares(Capability.CLASSIFY_STREAMING):
        yield "classify_iter", lambda: model.classify_iter(iter(PROMPTS))


def _generates(subject: Subject, name: str) -> bool:
    return name == "batch_stream" or not subject.declares(Capability.LABEL_SENTENCES)


def _ask_something_else(subject: Subject) -> None:
    """Make a call whose metrics differ from those of the next call."""
    model = subject.model
    if subject.classifies:
        model.classify(PROMPTS[1:2])
    elif subject.declares(Capability.BATCH_GENERATE):
        model.batch_generate(PROMPTS[1:2], max_tokens=1)
    elif subject.declares(Capability.GENERATE):
        list(model.generate(PROMPTS[1], max_tokens=1))


def _counts(metrics: GenerateMetrics, lengths: Sequence[int | None], what: str) -> None:
    """Raise `Violation` unless metrics count prompts of these lengths, as far as they are known."""
    known = [length for length in lengths if length is not None]
    exact = len(known) == len(lengths)
    expected = sum(known) if exact else len(lengths)
    must(
        metrics.prompt_tokens == expected if exact else metrics.prompt_tokens >= expected,
        f"prompt_tokens is {metrics.prompt_tokens} after {what}; the prompts have {lengths} tokens",
    )
    must(
        0 <= metrics.cached_prompt_tokens <= metrics.prompt_tokens,
        f"cached_prompt_tokens is {metrics.cached_prompt_tokens} of {metrics.prompt_tokens} {what}",
    )
