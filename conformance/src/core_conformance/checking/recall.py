"""Tests of cached state: prompts that share prefixes, and complete results compared.

A yardstick is a model that was loaded for the check: its first call finds nothing to remember.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.protocols import Capability, TextModel
from core.types import ClassifyResult
from core_conformance.checking.ask import evidence, row_logits, sampled, token
from core_conformance.checking.check import must, well_formed
from core_conformance.checking.compare import (
    LONGEST_LABEL,
    label_logprobs,
    near,
    same_answers,
    same_logits,
    same_logprobs,
)
from core_conformance.checking.material import own
from core_conformance.checking.subject import Subject

_OWN = own()
_NOTE = (_OWN and " " + " ".join(_OWN.prompts)) or (
    " the harbour was quiet at noon, and the boats lay still. Nobody had seen the old man since "
    "the storm, but his dog sat on the pier"
)
_ROOM = 48  # tokens: the longest ending of `relatives`, and a label or an answer after it
_ENOUGH = 120  # characters: more than twenty tokens, so that there is something worth keeping
_MUCH = 1200  # characters: more than 256 tokens, which caches of large blocks keep as well


def story(subject: Subject, opening: str) -> str:
    """Return a text of whole words after ``opening``, for which the context has room byte by byte.

    Each check has an opening of its own: nothing but the first tokens was asked before it.
    """
    size = min(_ENOUGH, subject.model.info.context_length - _ROOM)
    return (opening + _NOTE)[:size].rsplit(" ", 1)[0]


def long_story(subject: Subject, opening: str) -> str:
    """Return a text like `story` that fills some blocks of a cache, as far as the context allows.

    The context has room for it byte by byte, and for what comes after a story.
    """
    size = min(_MUCH, subject.model.info.context_length - _ROOM)
    return (opening + _NOTE * (1 + size // len(_NOTE)))[:size].rsplit(" ", 1)[0]


def relatives(subject: Subject, opening: str) -> tuple[str, ...]:
    """Return the story, longer and shorter ones, and prompts that share most, a few or no tokens of
    it.
    """
    whole = story(subject, opening)
    shorter, _ = whole.rsplit(" ", 1)
    return (
        whole,
        f"{whole} and then",
        shorter,
        f"{shorter} nobody",
        f"{opening} nothing came",
        whole[: len(whole) // 2],  # within a word
        whole[0].lower() + whole[1:],
        whole.partition(" ")[0],
    )


def telling(subject: Subject) -> dict[str, Any]:
    """Return options with which ``classify`` gives every detail that the backend supports."""
    options = evidence(subject)
    if subject.declares(Capability.LOGITS):
        options["return_logits"] = True
    return options


def alone(
    subject: Subject, model: TextModel, prompts: Sequence[str], **options: Any
) -> list[ClassifyResult]:
    """Classify each prompt in a separate call; a result that is an error is a violation."""
    collected = []
    for prompt in prompts:
        results = model.classify([prompt], **options)
        well_formed(
            len(results) == 1 and results[0].error is None,
            f"classify() gave {prompt!r:.60} {results!r:.200}",
        )
        collected += results
    return collected


def same_results(
    subject: Subject,
    prompts: Sequence[str],
    wanted: Sequence[ClassifyResult],
    results: Sequence[ClassifyResult],
    what: str,
) -> None:
    """Raise `Violation` unless greedy results of the same prompts are the same, part by part."""
    for prompt, left, right in zip(prompts, wanted, results, strict=True):
        where = f"{what}: {prompt!r:.200}"
        _same_parts(left, right, where)
        if left.logits is not None:
            same_logits(subject, row_logits(left), row_logits(right), where)
        if left.logprobs is not None or subject.declares(Capability.LABEL_SENTENCES):
            _same_labels(subject, left, right, where)

    if subject.declares(Capability.LABEL_SENTENCES):
        return  # there is no token
    pairs = [
        (sampled(left, prompt), sampled(right))
        for prompt, left, right in zip(prompts, wanted, results, strict=True)
    ]
    same_answers(subject, pairs, what)


def told(result: ClassifyResult) -> tuple[object, ...]:
    """Return the content of a result in a comparable form."""
    labels = tuple((result.logprobs or {}).values())
    return token(result).id, tuple(result.logits or ()), labels


def _same_parts(left: ClassifyResult, right: ClassifyResult, what: str) -> None:
    for name in ("logits", "label", "probabilities", "logprobs", "label_mass", "margin"):
        one, other = getattr(left, name), getattr(right, name)
        well_formed((one is None) == (other is None), f"{what} has {name} in one of two results")


def _same_labels(subject: Subject, left: ClassifyResult, right: ClassifyResult, what: str) -> None:
    wanted, seen = label_logprobs(left), label_logprobs(right)
    well_formed(list(wanted) == list(seen), f"{what} has labels {list(seen)}, not {list(wanted)}")
    same_logprobs(subject, wanted, right, what)

    # Another label is another answer, unless the two are at a tie.
    best, other = left.label or "", right.label or ""
    must(
        near(subject, wanted.get(best, 0.0), wanted.get(other, 0.0), LONGEST_LABEL),
        f"{what} has the label {other!r}, not {best!r}",
    )
