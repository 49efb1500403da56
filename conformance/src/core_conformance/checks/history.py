"""Checks of what went before: no call changes what a later one gives, however alike their prompts.

Backends keep what they computed for recent prompts. Here prompts share all, most or none of their
tokens, and are asked in one order and in the other, of a model that was just loaded too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from core.errors import RequestError, UnsupportedOptionError
from core.extensions import Scoring
from core.protocols import Capability, TextModel
from core.types import ClassifyResult, Score
from core_conformance.checking import ask
from core_conformance.checking.ask import EVEN, SPEAKING, Answer, sampled, seeds, speaks, voice
from core_conformance.checking.calls import (
    CancelAfter,
    already_set,
    close_quietly,
    greedy,
    together,
)
from core_conformance.checking.check import check, must, well_formed
from core_conformance.checking.compare import apart, near, same_draws, same_speech
from core_conformance.checking.recall import alone, relatives, same_results, story, telling, told
from core_conformance.checking.subject import Subject

_QUESTIONS: tuple[dict[str, Any], ...] = (
    {"labels": ask.LABELS},
    {"labels": ask.SEVERAL_WORDS},
    {"labels": ask.LABELS, "label_prefix": ": "},
    {"labels": ("bad", "old", "new")},
)
_ROWS = 64  # more prompts than a model keeps that keeps few
_DRAWS = 5
_AT_ONCE = 1e-9  # seconds: over before anything can be done


@check(
    "history.classify",
    "Earlier classifications MUST NOT change a result, whatever beginning the prompts share",
    Capability.CLASSIFY,
)
def classified_before(subject: Subject) -> None:
    prompts, options = relatives(subject, "At first"), telling(subject)
    with subject.loaded() as fresh:
        forth = alone(subject, fresh, prompts, **options)
        again = alone(subject, fresh, prompts[:3], **options)
    same_results(subject, prompts[:3], forth[:3], again, "classified once, and again")

    # The other load is closed by now, and nothing of it may be left here.
    back = alone(subject, subject.model, prompts[::-1], **options)[::-1]
    same_results(subject, prompts, forth, back, "by another load, in the opposite order")
    apart(list(map(told, forth)))


@check(
    "history.labels",
    "Labels MUST be judged again after a prompt that was asked for others, or with another prefix",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def labelled_before(subject: Subject) -> None:
    whole, longer, *_ = relatives(subject, "Once more")
    questions = [(whole, question) for question in _QUESTIONS] + [(longer, _QUESTIONS[0])]
    with subject.loaded() as fresh:
        forth = _labelled(subject, fresh, questions)
    back = _labelled(subject, subject.model, questions[::-1])[::-1]
    prompts = [prompt for prompt, _ in questions]
    same_results(subject, prompts, forth, back, "asked for several sets of labels, by turns")


@check(
    "history.options",
    "The options of an earlier call with the same prompt MUST NOT count in a later one",
    Capability.CLASSIFY,
)
def options_of_before(subject: Subject) -> None:
    prompts, options = [story(subject, "Now")], telling(subject)
    plain = alone(subject, subject.model, prompts, **options)
    with suppress(UnsupportedOptionError):  # whose refusal is for other checks
        _draws_its_own(subject, *prompts)
    bare = alone(subject, subject.model, prompts)
    for prompt, result in zip(prompts, bare, strict=True):
        extras = [result.logits, result.label, ask.token(result).logprob]
        must(extras == [None] * 3, f"no logits requested for {prompt!r}, but got {result!r:.200}")
    again = alone(subject, subject.model, prompts, **options)
    same_results(subject, prompts, plain, again, "greedy, before and after other options")


@check(
    "history.results",
    "A result MUST be the caller's own: what is done to it changes no later one",
    Capability.CLASSIFY,
    (Capability.LOGITS, Capability.LABELS),
)
def results_are_the_callers(subject: Subject) -> None:
    prompts, options = [story(subject, "Then")], telling(subject)
    if subject.declares(Capability.LABELS):
        options["labels"] = ask.LABELS
    given = alone(subject, subject.model, prompts, **options)
    wanted = copy.deepcopy(given)
    _spoil(*given)
    again = alone(subject, subject.model, prompts, **options)
    same_results(subject, prompts, wanted, again, "after the caller changed the result of before")


@check(
    "history.many",
    "A result MUST stay the same however many other prompts come in between",
    Capability.CLASSIFY,
)
def many_in_between(subject: Subject) -> None:
    prompts, options = relatives(subject, "In between")[:3], telling(subject)
    first = alone(subject, subject.model, prompts, **options)
    others = [f"{number} ships and no more" for number in range(_ROWS)]
    subject.model.classify(others)
    alone(subject, subject.model, others[::4])
    again = alone(subject, subject.model, prompts, **options)
    same_results(subject, prompts, first, again, f"before and after {_ROWS} other prompts")
    apart(list(map(told, first)))


@check(
    "history.stopped",
    "A call that was cancelled or timed out MUST NOT change what later ones classify",
    Capability.CLASSIFY,
)
def stopped_before(subject: Subject) -> None:
    prompts, options = relatives(subject, "Just then")[:2], telling(subject)
    with subject.loaded() as fresh:
        wanted = alone(subject, fresh, prompts, **options)
    stops: tuple[dict[str, Any], ...] = (
        {"cancel": already_set()},
        *({"cancel": CancelAfter(looks)} for looks in (2, 4)),
        {"timeout": _AT_ONCE},
    )
    for stop in stops:
        with suppress(UnsupportedOptionError, RequestError):  # what they do is for other checks
            subject.model.classify(prompts[::-1], **options, **stop)
        again = alone(subject, subject.model, prompts, **options)
        same_results(subject, prompts, wanted, again, f"after a call with {sorted(stop)}")


@check(
    "history.threads",
    "Threads that classify prompts with one beginning at once MUST each get what one gets alone",
    Capability.CLASSIFY,
)
def threads_share_a_beginning(subject: Subject) -> None:
    prompts, options = relatives(subject, "By then")[:4], telling(subject)
    with subject.loaded() as fresh:
        wanted = alone(subject, fresh, prompts, **options)
    model = subject.model

    # Neither thread begins with the prompt that the other load was asked first.
    orders = [(1, 2, 3, 0), (3, 2, 1, 0)]
    parts = [[prompts[place] for place in order] for order in orders]
    read = together(*(partial(alone, subject, model, part, **options) for part in parts))
    for order, part, results in zip(orders, parts, read, strict=True):
        own = [wanted[place] for place in order]
        same_results(subject, part, own, results, "alone, and alongside a thread that asks alike")
    apart(list(map(told, wanted)))


@check(
    "history.scores",
    "Earlier scores MUST NOT change a score, whatever beginning the prompts share",
    Capability.SCORING,
)
def scored_before(subject: Subject) -> None:
    prompts = relatives(subject, "Long ago")[:4]
    pairs = [(prompts[0], " very good"), *((prompt, " not new") for prompt in prompts)]
    with subject.loaded() as fresh:
        forth = _scored(subject, fresh, pairs)
    back = _scored(subject, subject.model, pairs[::-1])[::-1]
    for (prompt, text), one, other in zip(pairs, forth, back, strict=True):
        parts = list(zip(one.token_logprobs, other.token_logprobs, strict=False))
        must(
            len(one.token_logprobs) == len(other.token_logprobs)
            and all(near(subject, *both) for both in parts),
            f"{text!r} after {prompt!r} scores {one.token_logprobs} when asked in one order, and "
            f"{other.token_logprobs} in the other",
        )
    apart(forth[1:])


@check(
    "history.speech",
    "Earlier generations MUST NOT change a greedy text, whatever beginning the prompts share",
    SPEAKING,
)
def generated_before(subject: Subject) -> None:
    prompts = relatives(subject, "One day")[:4]
    speaks(subject, voice(subject))
    with subject.loaded() as fresh:
        forth = _spoken(subject, fresh, prompts)
    close_quietly(_begun(subject, prompts[0]))
    back = _spoken(subject, subject.model, prompts[::-1])[::-1]
    same_speech(subject, list(zip(forth, back, strict=True)), "asked in one order and the other")
    apart([answer.ids for answer in forth])


def _labelled(
    subject: Subject, model: TextModel, questions: Iterable[tuple[str, dict[str, Any]]]
) -> list[ClassifyResult]:
    return [
        result
        for prompt, question in questions
        for result in alone(subject, model, [prompt], **question, **telling(subject))
    ]


def _draws_its_own(subject: Subject, prompt: str) -> None:
    """Raise `Violation` unless draws are those of their own seeds, in whatever order asked."""
    requests = [EVEN | seed for seed in seeds(subject, _DRAWS)]
    forth = [_drawn(subject, prompt, options) for options in requests]
    back = [_drawn(subject, prompt, options) for options in requests[::-1]][::-1]
    if subject.declares(Capability.SEED):
        pairs = list(zip(forth, back, strict=True))
        same_draws(subject, pairs, "drawn with several seeds by turns, and in the opposite order")
    drawn = {answer.ids for answer in forth}
    must(len(drawn) > 1, f"{len(drawn)} draws with {EVEN} after {prompt!r} all gave {drawn}")


def _drawn(subject: Subject, prompt: str, options: dict[str, Any]) -> Answer:
    request = ask.evidence(subject) | options
    return sampled(alone(subject, subject.model, [prompt], **request)[0], prompt)


def _spoil(result: ClassifyResult) -> None:
    if result.logits is not None:
        for place in range(len(result.logits)):
            result.logits[place] = 0.0
    for values in (result.logprobs, result.probabilities):
        if values is not None:
            values.update(dict.fromkeys(values, -1.0))


def _scored(subject: Subject, model: TextModel, pairs: Sequence[tuple[str, str]]) -> list[Score]:
    collected = []
    for prompt, text in pairs:
        scores = cast("Scoring", model).score([prompt], [text])
        well_formed(
            len(scores) == 1 and bool(scores[0].token_logprobs),
            f"score() gave {text!r} after {prompt!r:.60} {scores!r:.200}",
        )
        collected += scores
    return collected


def _spoken(subject: Subject, model: TextModel, prompts: Sequence[str]) -> list[Answer]:
    continues = voice(subject) is not Capability.CHAT  # which answers instead
    return [
        Answer(tuple(greedy(subject, model, prompt, 3)), None, prompt if continues else "")
        for prompt in prompts
    ]


def _begun(subject: Subject, prompt: str) -> Any:
    stream = ask.speak(subject, subject.model, prompt, max_tokens=16)
    next(stream, None)
    return stream
