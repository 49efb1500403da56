"""Checks of the context's last places: by every operation, after prompts of any size."""

from __future__ import annotations

from core.errors import OptionError
from core.protocols import Capability, TextModel
from core_conformance.checking.ask import speak
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.sizes import sized
from core_conformance.checking.subject import Subject

_SMALL, _LARGE = 64, 1024  # positions
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
    with _small(subject) as model:
        limit = model.info.context_length
        testable(limit <= _LARGE, _TOO_LARGE)
        totals: dict[int, int] = {}
        for size in _SIZES:
            prompt = sized(subject, limit - _SMALL + size, turn=6)
            if prompt is None:
                continue
            for seed in ({}, {"temperature": 1e4}):  # a model that ends at once continues then
                stream = speak(subject, model, prompt, max_tokens=2 * limit, **seed)
                tokens = len(list(stream))
                if stream.finish_reason == "length":
                    totals[size] = tokens + limit - _SMALL + size
                    break
        testable(len(totals) > 1, _ENDS)
        must(
            len(set(totals.values())) == 1,
            f"in a context of {limit}, prompt and answer have these tokens together, by the "
            f"prompt's: {totals}",
        )


def _small(subject: Subject) -> TextModel:
    try:
        return subject.load(context_len=_SMALL)
    except OptionError:
        return subject.load()  # a backend may refuse to make it smaller
