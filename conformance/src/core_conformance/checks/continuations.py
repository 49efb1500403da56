"""Checks of scores and labels: after prompts of every length, long, and across a border."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.ask import classify, row_logits, score, tokenizing
from core_conformance.checking.budget import within
from core_conformance.checking.check import check, leave_out, must, testable
from core_conformance.checking.compare import label_logprobs, log_total, near
from core_conformance.checking.sizes import NO_SIZES, cuts, reading, room, sized, telling
from core_conformance.checking.subject import Subject

_SOME = 0.3  # of the passes for one check
_MANY, _PLACES = 60, 20  # lengths of a prompt, and of a continuation
_NEXT = " and then"


@check(
    "lengths.scores",
    "score MUST read a prompt of any length as classify reads it",
    Capability.SCORING,
    Capability.CLASSIFY,
    Capability.LOGITS,
    Capability.TOKENIZING,
    broad=True,
)
def every_scored_length(subject: Subject) -> None:
    encode, compared = tokenizing(subject).encode, 0
    lengths = telling(room(subject, spare=2 * len(_NEXT)))[:_MANY]
    for length in within(subject, lengths, reading(2), "tokens of a prompt", _SOME):
        prompt = sized(subject, length, turn=1)
        ids = encode(prompt + _NEXT) if prompt else ()
        if prompt is None or list(ids[:length]) != list(encode(prompt)):
            continue

        row = row_logits(classify(subject, [prompt], return_logits=True)[0])
        logprobs = score(subject, [prompt], [_NEXT])[0].token_logprobs
        wanted = row[ids[length]] - log_total(row)

        must(
            len(logprobs) == len(ids) - length and near(subject, wanted, logprobs[0]),
            f"{_NEXT!r} after a prompt of {length} tokens has the token_logprobs {logprobs}; "
            f"classify gives {wanted:.5f} of the first of {len(ids) - length} tokens",
        )

        compared += 1
    testable(bool(compared), NO_SIZES)


@check(
    "lengths.continuations",
    "A continuation of any length MUST have a logprob for each token, wherever the prompt ends",
    Capability.SCORING,
    Capability.TOKENIZING,
    broad=True,
)
def every_continuation(subject: Subject) -> None:
    fronts = cuts(subject, sized(subject, room(subject), turn=2) or "a")
    head = min((size for size in fronts if size >= 2), default=0)
    tails = [size for size in telling(max(fronts) - head) if head + size in fronts]
    testable(bool(tails), NO_SIZES)
    whole = _logprobs(subject, fronts, head, max(fronts))
    for size in within(subject, tails[:_PLACES], reading(2), "tokens of a continuation", _SOME):
        # The same tokens with nothing after them.
        end = head + size
        _same_logprobs(subject, whole[:size], _logprobs(subject, fronts, head, end), size)

        # The next one after a prompt that holds them.
        if end + 1 in fronts:
            logprobs = _logprobs(subject, fronts, end, end + 1)
            _same_logprobs(subject, whole[size : size + 1], logprobs, size)


@check(
    "lengths.labels",
    "A label after a prompt of any length MUST have the logprob that score gives it there",
    Capability.CLASSIFY,
    Capability.LABELS,
    Capability.SCORING,
    broad=True,
)
def labels_after_every_length(subject: Subject) -> None:
    lengths, compared = telling(room(subject, spare=2 * len(_NEXT)))[:_PLACES], 0
    for length in within(subject, lengths, reading(3), "tokens of a prompt with labels", _SOME):
        prompt = sized(subject, length, turn=10)
        if prompt is None or prompt.endswith(" "):
            continue

        (result,) = classify(subject, [prompt], labels=ask.SEVERAL_WORDS)
        logprobs = label_logprobs(result)

        texts = [f" {label}" for label in ask.SEVERAL_WORDS]
        for label, scored in zip(
            logprobs, score(subject, [prompt] * len(texts), texts), strict=True
        ):
            must(
                near(subject, logprobs[label], scored.logprob, len(scored.token_logprobs) + 1),
                f"after a prompt of {length} tokens, {label!r} has the logprob "
                f"{logprobs[label]:.5f} as a label, and {scored.logprob:.5f} as a continuation",
            )

        compared += 1
    testable(bool(compared), NO_SIZES)


def _logprobs(subject: Subject, fronts: Mapping[int, str], start: int, end: int) -> Sequence[float]:
    """Return the scores of the tokens between two places of a text."""
    prompt = fronts[start]
    return score(subject, [prompt], [fronts[end][len(prompt) :]])[0].token_logprobs


def _same_logprobs(
    subject: Subject, wanted: Sequence[float], logprobs: Sequence[float], size: int
) -> None:
    must(
        len(logprobs) == len(wanted)
        and all(near(subject, *pair) for pair in zip(wanted, logprobs, strict=True)),
        f"token_logprobs after {size} tokens of a continuation: {_ends(logprobs)}; as parts of a "
        f"longer one they were {_ends(wanted)}",
    )


def _ends(values: Sequence[float]) -> str:
    shown = [f"{value:.4f}" for value in values]
    return f"{len(shown)}, " + ", ".join(
        shown if len(shown) < 7 else [*shown[:3], "..", *shown[-3:]]
    )


_BORDERS = (
    ("The cat sat on th", "e"),
    ("She was walk", "ing"),
    ("They went to the sta", "tion"),
    ("Nobody knows wh", "y"),
)
_NONE = "texts whose words have tokens across their parts, of which the tokenizer has none"


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
    if not parts:
        leave_out(_NONE)
    return parts
