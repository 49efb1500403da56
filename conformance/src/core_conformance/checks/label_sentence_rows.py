"""Checks of label sentences in many rows, in every form of classify, and at another time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any, cast

from core.errors import EmptyPromptError, PromptTooLongError, RequestError
from core.extensions import ClassifyStreaming
from core.options import GenerateConfig
from core.protocols import Capability
from core.types import ClassifyResult
from core_conformance.checking import ask
from core_conformance.checking.ask import classify, hidden
from core_conformance.checking.budget import within
from core_conformance.checking.calls import promptly, together
from core_conformance.checking.check import check, must, testable, well_formed
from core_conformance.checking.compare import apart, label_logprobs, near
from core_conformance.checking.recall import alone, same_results
from core_conformance.checking.sizes import overlong, rows, short_context
from core_conformance.checking.subject import Subject

_TEXTS = (ask.SHORT, *ask.PLAIN, *ask.HOSTILE[1:], ask.LONG)
_SIZES = (3, 17, 65, 257, 9, 33, 129, 16, 64, 8, 32)
_SOME = 0.4  # of the passes for one check
_FEW_TOKENS = 4096
_SENTENCES = ("{label}", "It is {label}.", "Something else: {label}!")
_ALIKE = (
    "the labels' log-probabilities differ by less than the tolerance between any two of the texts "
    "tried: use a model whose scores depend on the text"
)


@check(
    "label_sentences.neighbours",
    "Other rows, their order and rows that are equal MUST NOT change a text's probabilities",
    Capability.LABEL_SENTENCES,
)
def neighbours_change_nothing(subject: Subject) -> None:
    for labels in (ask.LABELS, ask.SEVERAL_WORDS):
        wanted = alone(subject, subject.model, _TEXTS, labels=labels)
        for step in (1, -1):
            given, own = [*_TEXTS[::step], *_TEXTS[:3]], [*wanted[::step], *wanted[:3]]
            results = classify(subject, given, labels=labels)
            same_results(subject, given, own, results, "alone, and among others")
        apart([result.probabilities for result in wanted])


@check(
    "label_sentences.rows",
    "Any number of texts MUST each have the probabilities that they have alone",
    Capability.LABEL_SENTENCES,
    broad=True,
)
def any_number_of_rows(subject: Subject) -> None:
    for size in within(subject, _SIZES, lambda size: 3 + size / 8, "texts in one call", _SOME):
        given = rows(size)[::-1]
        results = classify(subject, given)
        places = sorted({0, size // 2, size - 1})
        texts = [given[place] for place in places]
        wanted = alone(subject, subject.model, texts)
        what = f"alone, and one of {size} texts"
        same_results(subject, texts, wanted, [results[place] for place in places], what)


@check(
    "label_sentences.error-rows",
    "A text that is empty, not valid Unicode or too long MUST be its row's error, without a label; "
    "the others are as without it",
    Capability.LABEL_SENTENCES,
)
def errors_stay_in_their_rows(subject: Subject) -> None:
    with short_context(subject, _FEW_TOKENS) as model:
        bad = {
            "": EmptyPromptError,
            "half: \ud83d": RequestError,
            overlong(model): PromptTooLongError,
        }
        good = ask.PLAIN[:4]
        wanted = model.classify(good)
        results = model.classify([good[0], *bad, *good[1:]])
    well_formed(len(results) == 7, f"classify of 7 texts gave {len(results)} rows")
    for (text, kind), result in zip(bad.items(), results[1:4], strict=True):
        must(
            isinstance(result.error, kind) and not ask.answered(result),
            f"{text[:20]!r} gave {result!r}, not {kind.__name__} without a label",
        )
    same_results(subject, good, wanted, [results[0], *results[4:]], "among rows that fail")


@check(
    "label_sentences.again",
    "Earlier calls, with other labels or another sentence, MUST NOT change a result",
    Capability.LABEL_SENTENCES,
)
def earlier_calls_change_nothing(subject: Subject) -> None:
    cases: list[dict[str, Any]] = [
        {"labels": labels, "label_sentence": sentence}
        for labels in (ask.LABELS, ask.LABELS[::-1], ask.SEVERAL_WORDS)
        for sentence in _SENTENCES
    ]
    with subject.loaded() as fresh:
        wanted = [fresh.classify(ask.PLAIN, **case) for case in cases]
    for case, own in zip(cases[::-1], wanted[::-1], strict=True):
        results = classify(subject, ask.PLAIN, **case)
        same_results(subject, ask.PLAIN, own, results, f"{case}, asked in two orders")


@check(
    "label_sentences.forms",
    "classify_iter, a config in place of keywords, and an awaited call MUST give what classify "
    "gives with keywords",
    Capability.LABEL_SENTENCES,
)
def forms_give_the_same(subject: Subject) -> None:
    options: dict[str, Any] = {"labels": ask.SEVERAL_WORDS, "label_sentence": _SENTENCES[1]}
    wanted = classify(subject, _TEXTS, **options)
    for name, form in _forms(subject).items():
        results = form(options)
        well_formed(len(results) == len(_TEXTS), f"{name} of {len(_TEXTS)} texts: {results!r:.80}")
        same_results(subject, _TEXTS, wanted, results, f"classify and {name} with {options}")


def _forms(subject: Subject) -> dict[str, Callable[[dict[str, Any]], list[ClassifyResult]]]:
    model: Any = subject.model
    forms: dict[str, Callable[[dict[str, Any]], list[ClassifyResult]]] = {
        "a config": lambda options: model.classify(_TEXTS, GenerateConfig(**options)),
        "fields of generate": lambda options: model.classify(
            _TEXTS, GenerateConfig(max_tokens=1, stop=("e",), stop_tokens=(1,), **options)
        ),
    }
    if subject.declares(Capability.CLASSIFY_STREAMING):
        stream = cast("ClassifyStreaming", model).classify_iter
        forms["classify_iter"] = lambda options: list(stream(iter(_TEXTS), **options))
    if subject.declares(Capability.ASYNCHRONOUS):
        forms["an awaited call"] = partial(_awaited, subject)
    return forms


def _awaited(subject: Subject, options: dict[str, Any]) -> list[ClassifyResult]:
    async def wait() -> list[ClassifyResult]:
        model: Any = subject.model
        results, _ = await model.call_async("classify", _TEXTS, **options)
        return cast("list[ClassifyResult]", results)

    return promptly(subject, lambda: asyncio.run(wait()), "an awaited call")


@check(
    "label_sentences.threads",
    "Calls of several threads MUST each have their own results",
    Capability.LABEL_SENTENCES,
)
def threads_have_their_own(subject: Subject) -> None:
    cases = [
        (labels, _TEXTS[place:] + _TEXTS[:place])
        for place, labels in enumerate((ask.LABELS, ask.SEVERAL_WORDS, ask.LABELS[::-1]))
    ]
    calls = [partial(classify, subject, texts, labels=labels) for labels, texts in cases]
    wanted = [call() for call in calls]
    for (_, texts), own, results in zip(cases, wanted, together(*calls), strict=True):
        same_results(subject, texts, own, results, "alone, and beside other threads")


@check(
    "label_sentences.embeddings",
    "Texts with different probabilities MUST have different embeddings as their hidden states",
    Capability.LABEL_SENTENCES,
    Capability.HIDDEN_STATES,
)
def embeddings_are_of_their_text(subject: Subject) -> None:
    results = classify(subject, _TEXTS)
    states = [state.states for state in hidden(subject, _TEXTS)]
    comparable = False
    for one, other in combinations(range(len(_TEXTS)), 2):
        if _alike(subject, results[one], results[other]):
            continue
        comparable = True
        must(
            states[one] != states[other],
            f"{_TEXTS[one]!r:.60} and {_TEXTS[other]!r:.60} have different probabilities and the "
            "same embedding",
        )
    testable(comparable, _ALIKE)


def _alike(subject: Subject, one: ClassifyResult, other: ClassifyResult) -> bool:
    pairs = zip(label_logprobs(one).values(), label_logprobs(other).values(), strict=True)
    return all(near(subject, left, right) for left, right in pairs)
