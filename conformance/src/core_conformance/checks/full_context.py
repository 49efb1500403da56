"""Checks of prompts that just fit into the context, and of those that just do not."""

from __future__ import annotations

from core.errors import PromptTooLongError
from core.protocols import Capability, TextModel
from core_conformance.checking.ask import classify, evidence, speak
from core_conformance.checking.budget import within
from core_conformance.checking.calls import ending
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.recall import same_results, telling
from core_conformance.checking.sizes import reading, sized, small
from core_conformance.checking.subject import Subject

_SMALL, _LARGE = 64, 1024  # positions
_SHARE = 0.3  # of the passes for one check


@check(
    "lengths.context",
    "A prompt that fills the context exactly MUST be read and continued by one token, a shorter "
    "one by as many as fit; one token more is too long",
    (Capability.CLASSIFY, Capability.GENERATE),
    Capability.TOKENIZING,
    broad=True,
)
def to_the_contexts_end(subject: Subject) -> None:
    with small(subject, _SMALL) as model:
        limit = model.info.context_length
        sizes = [limit, limit + 1, limit - 1]
        sizes.insert(0 if limit > _LARGE else 3, _SMALL // 2)  # to look at something, if it is slow
        for size in within(subject, sizes, reading(3), f"of a context of {limit}, prompts", _SHARE):
            prompt = sized(subject, size, turn=4)
            if prompt is None:
                continue

            if subject.declares(Capability.CLASSIFY):
                _classifies(subject, model, prompt, size)
            if subject.declares(Capability.GENERATE):
                _generates(subject, model, prompt, size)


def _classifies(subject: Subject, model: TextModel, prompt: str, size: int) -> None:
    limit, options = model.info.context_length, telling(subject)
    (result,) = model.classify([prompt], **options)
    must(
        isinstance(result.error, PromptTooLongError) if size > limit else result.error is None,
        f"classify of a prompt of {size} tokens in a context of {limit} has the error "
        f"{result.error!r}",
    )
    if size <= limit and size <= subject.model.info.context_length:
        what = f"a prompt of {size} tokens in contexts of two sizes, one of them {limit}"
        same_results(subject, [prompt], classify(subject, [prompt], **options), [result], what)


def _generates(subject: Subject, model: TextModel, prompt: str, size: int) -> None:
    limit, most = model.info.context_length, 4
    end = ending(lambda: model.generate(prompt, max_tokens=most, **evidence(subject)))
    seen = f"a prompt of {size} tokens in a context of {limit} gave {len(end.tokens)} tokens, "
    seen += f"{end.reason!r} and {end.error!r}"
    if size > limit:
        must(isinstance(end.error, PromptTooLongError) and not end.tokens, seen)
        return
    # The last token drawn may need no position; a full context has room for that one.
    places = limit - size + 1
    must(end.error is None and len(end.tokens) <= min(most, places), seen)
    must(end.reason == "stop" or len(end.tokens) >= min(most, max(1, places - 1)), seen)
    must(end.reason == "stop" or places > most or end.reason == "length", seen)


_TIGHT, _FILLABLE = 64, 1024  # positions
_SIZES = (48, 32, 47, 33, 16, 40, 56, 31)  # whole blocks, and others
_ENDS = "every answer ends before the context is full: use a model that continues"
_TOO_LARGE = "the context cannot be made small enough to be filled: use another model"


@check(
    "context.room",
    "After any prompt that leaves room, as many tokens MUST be drawn as fit: prompt and answer are "
    "as long together after a prompt of whole blocks as after any other",
    (Capability.GENERATE, Capability.SUBMITTING),
    Capability.TOKENIZING,
    broad=True,
)
def answers_fill_the_context(subject: Subject) -> None:
    with small(subject, _TIGHT) as model:
        limit = model.info.context_length
        testable(limit <= _FILLABLE, _TOO_LARGE)
        totals: dict[int, int] = {}
        for size in _SIZES:
            prompt = sized(subject, limit - _TIGHT + size, turn=6)
            if prompt is None:
                continue
            for seed in ({}, {"temperature": 1e4}):  # a model that ends at once continues then
                stream = speak(subject, model, prompt, max_tokens=2 * limit, **seed)
                tokens = len(list(stream))
                if stream.finish_reason == "length":
                    totals[size] = tokens + limit - _TIGHT + size
                    break
        testable(len(totals) > 1, _ENDS)
        must(
            len(set(totals.values())) == 1,
            f"in a context of {limit}, prompt and answer have these tokens together, by the "
            f"prompt's: {totals}",
        )
