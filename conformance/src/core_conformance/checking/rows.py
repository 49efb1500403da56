"""Every operation in one form: a row for each prompt, which has its tokens, or its error."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from core.errors import GenerationCancelled, GenerationTimeout, ModelClosedError
from core.extensions import (
    AttentionInspector,
    BatchStreaming,
    ClassifyStreaming,
    HiddenStates,
    Scoring,
)
from core.protocols import Capability, TextModel
from core.types import BatchResult, ClassifyResult, HiddenResult, Score, Token
from core_conformance.checking.applies import has_template
from core_conformance.checking.ask import PLAIN, SPEAKING, Answer, evidence, opened
from core_conformance.checking.calls import PROMPTS, ending, promptly
from core_conformance.checking.check import must
from core_conformance.checking.compare import label_logprobs, near, same_answers
from core_conformance.checking.subject import Subject

_TEXTS = (*PROMPTS, *PLAIN)
_CONTINUATION = " and the other one"
_BARE = (
    Capability.SCORING,
    Capability.HIDDEN_STATES,
    Capability.ATTENTION_INSPECTOR,
)  # nothing but cancel and timeout
_OF_STREAMS = (GenerationCancelled, GenerationTimeout, ModelClosedError)


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of a prompt. ``numbers``: its numbers, for an operation without an answer."""

    answer: Answer
    error: Exception | None = None
    numbers: tuple[float, ...] = ()


Ask = Callable[[TextModel, Sequence[str], dict[str, Any]], list[Row]]


@dataclass(frozen=True, slots=True)
class Way:
    """An operation: ``ask(model, prompts, options)``. A ``single`` one takes the first prompt."""

    name: Capability
    ask: Ask
    generates: bool = True
    single: bool = False

    def options(self, subject: Subject, max_tokens: int) -> dict[str, Any]:
        """Return the options that give most detail; ``max_tokens`` if it generates."""
        if self.generates:
            return evidence(subject) | {"max_tokens": max_tokens}
        return {} if self.name in _BARE else evidence(subject)


def asked(count: int) -> tuple[str, ...]:
    """Return ``count`` different prompts."""
    rounds = range(1 + count // len(_TEXTS))
    return tuple(text + f" {n}" * (n > 0) for n in rounds for text in _TEXTS)[:count]


def ways(subject: Subject, *among: Capability) -> list[Way]:
    """Return the operations that the backend offers, of those named, or of all by default."""
    declared = [WAYS[name] for name in among or WAYS if subject.declares(name)]
    return [way for way in declared if way.name is not Capability.CHAT or has_template(subject)]


def run(
    subject: Subject,
    way: Way,
    model: TextModel,
    prompts: Sequence[str],
    tokens: int,
    **options: Any,
) -> list[Row]:
    """Run the call in another thread and return its rows; `Violation` if it does not end."""
    given = way.options(subject, tokens) | options
    what = f"{way.name} of {len(prompts)} prompts with {sorted(options)}"
    return promptly(subject, lambda: way.ask(model, prompts, given), what)


def timed(
    subject: Subject,
    way: Way,
    model: TextModel,
    prompts: Sequence[str],
    tokens: int,
    **options: Any,
) -> tuple[list[Row], float]:
    """Do as `run` does, and say how many seconds it took."""
    start = time.perf_counter()
    rows = run(subject, way, model, prompts, tokens, **options)
    return rows, time.perf_counter() - start


def undisturbed(rows: Sequence[Row], what: str) -> None:
    """Raise `Violation` when a row of sound prompts has an error."""
    errors = [row.error for row in rows if row.error is not None]
    must(not errors, f"{what} gave {len(errors)} of {len(rows)} sound prompts {errors[:1]}")


def same_rows(
    subject: Subject,
    wanted: Sequence[Row],
    rows: Sequence[Row],
    what: str,
    *stopped: type[Exception],
) -> None:
    """Raise `Violation` unless each row is as wanted, or ``stopped`` after a part of its tokens.

    No row is missing, and each is in its place.
    """
    must(len(rows) == len(wanted), f"{what} gave {len(rows)} rows of {len(wanted)}")
    pairs = []
    for place, (own, row) in enumerate(zip(wanted, rows, strict=True)):
        here = f"{what}: row {place}"
        if row.error is None:
            _same_numbers(subject, own, row, here)
            pairs.append((own.answer, row.answer))
        else:
            _is_stopped(row, here, stopped)
            count = len(row.answer.tokens)
            part = replace(own.answer, tokens=own.answer.tokens[:count], finish_reason=None)
            pairs.append((part, replace(row.answer, finish_reason=None)))
    same_answers(subject, pairs, what)


def _same_numbers(subject: Subject, own: Row, row: Row, what: str) -> None:
    must(
        len(own.numbers) == len(row.numbers)
        and all(near(subject, *both) for both in zip(own.numbers, row.numbers, strict=True)),
        f"{what} has {row.numbers}, expected {own.numbers}",
    )


def _is_stopped(row: Row, what: str, stopped: tuple[type[Exception], ...]) -> None:
    names = " or ".join(kind.__name__ for kind in stopped)
    must(
        isinstance(row.error, stopped),
        f"{what} has the error {row.error!r}: expected {names or 'none'}",
    )
    reason = row.answer.finish_reason
    if isinstance(row.error, GenerationCancelled):
        must(
            reason in ("cancelled", None),
            f"{what} was cancelled, but its finish_reason is {reason!r}",
        )
    must(
        reason not in ("stop", "length"),
        f"{what} has {row.error!r}, yet its finish_reason is {reason!r}, as if it were complete",
    )


def _spoken(operation: Capability) -> Ask:
    def ask(model: TextModel, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
        end = ending(lambda: opened(operation, model, prompts[0], options))
        if end.error is not None and not isinstance(end.error, _OF_STREAMS):
            raise end.error
        prompt = "" if operation is Capability.CHAT else prompts[0]  # which it answers instead
        return [Row(Answer(end.tokens, end.reason, prompt), end.error)]

    return ask


def _batch(model: TextModel, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    results: list[BatchResult]
    try:
        results = model.batch_generate(prompts, **options)
    except ModelClosedError as error:
        return [Row(Answer((), None), error) for _ in prompts]
    _no_more("batch_generate", prompts, results)
    return [
        Row(Answer(row.tokens, row.finish_reason, prompt), row.error)
        for prompt, row in zip(prompts, results, strict=False)
    ]


def _batch_stream(model: Any, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    tokens: list[list[Token]] = [[] for _ in prompts]
    ended: Exception | None = None
    try:
        for row, token in cast("BatchStreaming", model).batch_stream(prompts, **options):
            tokens[row].append(token)
    except _OF_STREAMS as error:
        ended = error  # of some row; the tokens of each row are compared as far as they go
    return [
        Row(Answer(tuple(own), None, prompt), ended)
        for own, prompt in zip(tokens, prompts, strict=True)
    ]


def _classify(model: TextModel, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    try:
        results = model.classify(prompts, **options)
    except ModelClosedError as error:
        return [Row(Answer((), None), error) for _ in prompts]
    return _classified(prompts, results)


def _classify_iter(model: Any, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    results: list[ClassifyResult] = []
    try:
        results.extend(cast("ClassifyStreaming", model).classify_iter(iter(prompts), **options))
    except ModelClosedError as error:
        results += [ClassifyResult(error=error)] * (len(prompts) - len(results))
    return _classified(prompts, results)


def _classified(prompts: Sequence[str], results: Sequence[ClassifyResult]) -> list[Row]:
    _no_more("classify", prompts, results)
    return [
        Row(Answer(() if row.token is None else (row.token,), None, prompt), row.error, _told(row))
        for prompt, row in zip(prompts, results, strict=False)
    ]


def _told(row: ClassifyResult) -> tuple[float, ...]:
    if row.token is not None:
        return () if row.token.logprob is None else (row.token.logprob,)
    return tuple(label_logprobs(row).values()) if row.probabilities else ()


def _no_more(what: str, prompts: Sequence[str], results: Sequence[object]) -> None:
    must(
        len(results) <= len(prompts), f"{what} gave {len(results)} rows for {len(prompts)} prompts"
    )


def _score(model: Any, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    scores: list[Score]
    try:
        scores = cast("Scoring", model).score(prompts, [_CONTINUATION] * len(prompts), **options)
    except ModelClosedError as error:
        return [Row(Answer((), None), error) for _ in prompts]
    return [Row(Answer((), None), row.error, row.token_logprobs) for row in scores]


def _hidden(model: Any, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    results: list[HiddenResult]
    try:
        results = cast("HiddenStates", model).hidden_states(prompts, **options)
    except ModelClosedError as error:
        return [Row(Answer((), None), error) for _ in prompts]
    return [  # the states have a tolerance of their own
        Row(Answer((), None), row.error, (*row.layers, len(row.states or ()))) for row in results
    ]


def _inspect(model: Any, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    try:
        snapshot = cast("AttentionInspector", model).inspect_attention(prompts[0], **options)
    except _OF_STREAMS as error:
        return [Row(Answer((), None), error)]
    return [
        Row(Answer((), None), None, (snapshot.num_layers, snapshot.num_heads, snapshot.seq_len))
    ]


_WAYS = {
    way.name: way
    for way in (
        *(Way(name, _spoken(name), single=True) for name in SPEAKING),
        Way(Capability.BATCH_GENERATE, _batch),
        Way(Capability.BATCH_STREAMING, _batch_stream),
        Way(Capability.CLASSIFY, _classify, generates=False),
        Way(Capability.CLASSIFY_STREAMING, _classify_iter, generates=False),
        Way(Capability.SCORING, _score, generates=False),
        Way(Capability.HIDDEN_STATES, _hidden, generates=False),
        Way(Capability.ATTENTION_INSPECTOR, _inspect, generates=False, single=True),
    )
}
WAYS = _WAYS | {Capability.LABEL_SENTENCES: _WAYS[Capability.CLASSIFY]}
"""All operations that run prompts, by their capability."""

BATCHES = (Capability.BATCH_GENERATE, Capability.BATCH_STREAMING)
READERS = (
    Capability.CLASSIFY,
    Capability.LABEL_SENTENCES,
    Capability.CLASSIFY_STREAMING,
    Capability.SCORING,
    Capability.HIDDEN_STATES,
    Capability.ATTENTION_INSPECTOR,
)
