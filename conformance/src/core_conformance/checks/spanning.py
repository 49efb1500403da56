"""Checks of what follows a prompt with a token that spans their border."""

from __future__ import annotations

from core.protocols import Capability
from core_conformance.checking.ask import classify, score, tokenizing
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import label_logprobs, near
from core_conformance.checking.subject import Subject

_BORDERS = (
    ("The cat sat on th", "e"),
    ("She was walk", "ing"),
    ("They went to the sta", "tion"),
    ("Nobody knows wh", "y"),
)
_NONE = "to the tokenizer a word in two parts has the tokens of both: use another model"


@check(
    "labels.spanning",
    "Where a token spans the end of a prompt and a label, the label MUST have the probability of "
    "that token and those after it",
    Capability.CLASSIFY,
    Capability.LABELS,
    Capability.TOKENIZING,
)
def labels_begin_with_the_spanning_token(subject: Subject) -> None:
    for prompt, label, start, rest in _parted(subject):
        across, apart = (
            label_logprobs(row)[text]
            for row, text in (
                (classify(subject, [prompt], labels=[label], label_prefix="")[0], label),
                (classify(subject, [start], labels=[rest], label_prefix="")[0], rest),
            )
        )
        must(
            near(subject, across, apart),
            f"the label {label!r} after {prompt!r} has the logprob {across:.5f}; the same tokens, "
            f"{rest!r} after {start!r}, have {apart:.5f}",
        )


@check(
    "scoring.spanning",
    "Where a token spans the end of a prompt and a continuation, score MUST begin with that token",
    Capability.SCORING,
    Capability.TOKENIZING,
)
def scores_begin_with_the_spanning_token(subject: Subject) -> None:
    for prompt, continuation, start, rest in _parted(subject):
        across, apart = score(subject, [prompt, start], [continuation, rest])
        must(
            len(across.token_logprobs) == len(apart.token_logprobs)
            and near(subject, across.logprob, apart.logprob, len(apart.token_logprobs)),
            f"{continuation!r} after {prompt!r} has the score {across}; the same tokens, {rest!r} "
            f"after {start!r}, have {apart}",
        )


def _parted(subject: Subject) -> list[tuple[str, str, str, str]]:
    """Return texts parted within a token, and then before it: twice a text and what follows it."""
    encode, parts = tokenizing(subject).encode, []
    for prompt, continuation in _BORDERS:
        text = prompt + continuation
        ids = list(encode(text))
        must(bool(ids), f"encode({text!r}) gave no ids")
        if ids[: len(encode(prompt))] == list(encode(prompt)):
            continue
        # The longest beginning whose tokens the text begins with.
        starts = (text[:end] for end in range(len(prompt) - 1, 0, -1))
        start = next((s for s in starts if ids[: len(encode(s))] == list(encode(s))), "")
        if start:
            parts.append((prompt, continuation, start, text[len(start) :]))
    testable(bool(parts), _NONE)
    return parts
