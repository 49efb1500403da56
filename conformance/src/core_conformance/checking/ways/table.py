"""Every operation in one form: a row for each prompt, which has its tokens, or its error.

The table below lists every way in which a prompt enters: as text, as ids and as a message, alone
and in batches, called and awaited. A clause that holds for all of them is written once over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from core.errors import GenerationCancelled, GenerationTimeout, ModelClosedError, RequestError
from core.extensions import (
    AttentionInspector,
    BatchStreaming,
    ClassifyStreaming,
    HiddenStates,
    Scoring,
    TokenPrompts,
)
from core.protocols import Capability, TextModel
from core.types import (
    BatchResult,
    ClassifyResult,
    HiddenResult,
    Score,
    Token,
    TokenSequence,
)
from core_conformance.checking.applies import has_template
from core_conformance.checking.ask import LABELS, SPEAKING, Answer, evidence, opened
from core_conformance.checking.calls import ending
from core_conformance.checking.check import must
from core_conformance.checking.compare import label_logprobs
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.forms import Awaited

CONTINUATION = " and the other one"
_OF_STREAMS = (GenerationCancelled, GenerationTimeout, ModelClosedError)


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of a prompt. ``numbers``: its numbers, for an operation without an answer.

    ``state``: its hidden state, whose tolerance is relative to its length.
    """

    answer: Answer
    error: Exception | None = None
    numbers: tuple[float, ...] = ()
    state: Sequence[float] = ()


Ask = Callable[[TextModel, Sequence[str], dict[str, Any]], list[Row]]


@dataclass(frozen=True, slots=True, repr=False)
class Way:
    """An operation: ``ask(model, prompts, options)``. A ``single`` one takes the first prompt.

    ``needs``: the capabilities, where the name is not one. ``base``: the way that gives the same,
    by which a clause judges this one. ``fixed``: options without which it is another way.
    ``textless``: its tokens come as ids alone. ``bare``: it takes nothing but cancel and timeout.
    """

    name: str
    ask: Ask
    generates: bool = True
    single: bool = False
    needs: tuple[Capability, ...] = ()
    base: str = ""
    fixed: tuple[tuple[str, Any], ...] = ()
    textless: bool = False
    bare: bool = False

    def __repr__(self) -> str:
        return str(self.name)

    def options(self, subject: Subject, max_tokens: int) -> dict[str, Any]:
        """Return the options that give most detail; ``max_tokens`` if it generates."""
        if self.bare:
            return {}
        length = {"max_tokens": max_tokens} if self.generates else {}
        return evidence(subject) | length | dict(self.fixed)

    def declared(self, subject: Subject) -> bool:
        """Return whether a backend offers it, with this model."""
        needs = self.needs or (Capability(self.name),)
        return subject.declares(*needs) and (Capability.CHAT not in needs or has_template(subject))


def ways(subject: Subject, *among: Capability) -> list[Way]:
    """Return the operations that the backend offers, of those named, or of all by default.

    Each operation once, called with text; `every_way` has the others too.
    """
    declared = [WAYS[name] for name in among or WAYS if subject.declares(name)]
    return [way for way in declared if way.name is not Capability.CHAT or has_template(subject)]


def every_way(subject: Subject) -> list[Way]:
    """Return all ways that the backend offers."""
    return [way for way in EVERY if way.declared(subject)]


def _spoken(operation: Capability) -> Ask:
    def ask(model: TextModel, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
        end = ending(lambda: opened(operation, model, prompts[0], options))
        if end.error is not None and not isinstance(end.error, RequestError | ModelClosedError):
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
    except (RequestError, ModelClosedError) as error:
        ended = error  # of some row; the tokens of each row are compared as far as they go
    of_all = isinstance(ended, _OF_STREAMS)
    return [
        Row(Answer(tuple(own), None, prompt), ended if of_all or not own else None)
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
    labels = tuple(label_logprobs(row).values()) if row.probabilities else ()
    return (() if row.token is None or row.token.logprob is None else (row.token.logprob,)) + labels


def _no_more(what: str, prompts: Sequence[str], results: Sequence[object]) -> None:
    must(
        len(results) <= len(prompts), f"{what} gave {len(results)} rows for {len(prompts)} prompts"
    )


def _score(model: Any, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    scores: list[Score]
    try:
        scores = cast("Scoring", model).score(prompts, [CONTINUATION] * len(prompts), **options)
    except ModelClosedError as error:
        return [Row(Answer((), None), error) for _ in prompts]
    return _scored(prompts, scores)


def _scored(prompts: Sequence[str], scores: Sequence[Score]) -> list[Row]:
    _no_more("score", prompts, scores)
    return [Row(Answer((), None), row.error, row.token_logprobs) for row in scores]


def _inspect(model: Any, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    try:
        snapshot = cast("AttentionInspector", model).inspect_attention(prompts[0], **options)
    except (RequestError, ModelClosedError) as error:
        return [Row(Answer((), None), error)]
    return [
        Row(Answer((), None), None, (snapshot.num_layers, snapshot.num_heads, snapshot.seq_len))
    ]


def _hidden(model: Any, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    results: list[HiddenResult] = cast("HiddenStates", model).hidden_states(prompts, **options)
    _no_more("hidden_states", prompts, results)
    return [Row(Answer((), None), row.error, state=row.states or ()) for row in results]


def _ids(model: Any, prompts: Sequence[str]) -> list[list[int]]:
    return [model.encode(prompt) if prompt else [] for prompt in prompts]


def _generate_tokens(model: Any, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    rows: list[TokenSequence]
    rows = cast("TokenPrompts", model).generate_tokens(_ids(model, prompts), **options)
    _no_more("generate_tokens", prompts, rows)
    return [
        Row(Answer(_new_tokens(row), row.finish_reason, prompt), row.error)
        for row, prompt in zip(rows, prompts, strict=False)
    ]


def _new_tokens(row: TokenSequence) -> tuple[Token, ...]:
    new = [id for id, generated in zip(row.ids, row.generated, strict=True) if generated]
    logprobs = row.logprobs or (None,) * len(new)
    return tuple(Token(id, "", logprob) for id, logprob in zip(new, logprobs, strict=False))


def _stream_tokens(model: Any, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    (ids,) = _ids(model, prompts[:1])
    end = ending(lambda: cast("TokenPrompts", model).stream_tokens(ids, **options))
    if end.error is not None and not isinstance(end.error, RequestError | ModelClosedError):
        raise end.error
    return [Row(Answer(end.tokens, end.reason, prompts[0]), end.error)]


def _score_tokens(model: Any, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
    """Score the ids that `CONTINUATION` adds to those of each prompt.

    If a token spans the border, the text is scored instead.
    """
    heads = _ids(model, prompts)
    wholes = [model.encode(prompt + CONTINUATION) for prompt in prompts]
    places = [n for n, head in enumerate(heads) if wholes[n][: len(head)] == head]
    tails = [wholes[place][len(heads[place]) :] for place in places]
    tokens = cast("TokenPrompts", model)
    scores = tokens.score_tokens([heads[place] for place in places], tails, **options)
    rows = _scored(prompts, scores)
    if len(rows) < len(prompts):
        given = dict(zip(places, rows, strict=True))
        texts = _score(model, prompts, options)
        return [given.get(place, row) for place, row in enumerate(texts)]
    return rows


def _awaited(way: Way) -> Way:
    """Return the way whose operation is awaited in an event loop."""

    def ask(model: TextModel, prompts: Sequence[str], options: dict[str, Any]) -> list[Row]:
        return way.ask(cast("TextModel", Awaited(model)), prompts, options)

    return Way(
        f"awaited {way.name}",
        ask,
        way.generates,
        way.single,
        (*(way.needs or (Capability(way.name),)), Capability.ASYNCHRONOUS),
        way.base or way.name,
        way.fixed,
        way.textless,
        way.bare,
    )


_TEXTS = (
    *(Way(name, _spoken(name), single=True) for name in SPEAKING),
    Way(Capability.BATCH_GENERATE, _batch),
    Way(Capability.BATCH_STREAMING, _batch_stream),
    Way(Capability.CLASSIFY, _classify, generates=False),
    Way(Capability.CLASSIFY_STREAMING, _classify_iter, generates=False),
    Way(Capability.SCORING, _score, generates=False, bare=True),
    Way(Capability.ATTENTION_INSPECTOR, _inspect, generates=False, single=True, bare=True),
)
_OF_IDS = (Capability.TOKEN_PROMPTS, Capability.TOKENIZING)
_LABELS = (("labels", LABELS),)
_MORE = (
    Way(Capability.HIDDEN_STATES, _hidden, generates=False, bare=True),
    Way("generate_tokens", _generate_tokens, needs=_OF_IDS, base="generate", textless=True),
    Way("stream_tokens", _stream_tokens, single=True, needs=_OF_IDS, base="generate"),
    Way(
        "score_tokens",
        _score_tokens,
        generates=False,
        needs=(*_OF_IDS, Capability.SCORING),
        base=Capability.SCORING,
        bare=True,
    ),
    Way(
        "classify with labels",
        _classify,
        generates=False,
        needs=(Capability.CLASSIFY, Capability.LABELS),
        fixed=_LABELS,
    ),
    Way(
        "classify_iter with labels",
        _classify_iter,
        generates=False,
        needs=(Capability.CLASSIFY_STREAMING, Capability.CLASSIFY, Capability.LABELS),
        base="classify with labels",
        fixed=_LABELS,
    ),
    Way(
        "sentences",
        _classify,
        generates=False,
        needs=(Capability.LABEL_SENTENCES,),
        fixed=_LABELS,
    ),
)

WAYS = {Capability(way.name): way for way in _TEXTS} | {
    Capability.LABEL_SENTENCES: _TEXTS[5],
}
"""All operations that run prompts as text, by their capability."""

EVERY = (*_TEXTS, *_MORE, *(_awaited(way) for way in (*_TEXTS, *_MORE)))
"""All ways in which a prompt enters."""

BY_NAME = {way.name: way for way in EVERY}
