"""When two answers count as the same, and what a distribution says.

Logits of one prompt may differ by ``logit_tolerance`` between two runs. So greedy runs may part at
a tie (`margins`), and a draw may fall on the other side of a border. Nothing else is excused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from core.types import ClassifyResult
from core_conformance.answers import Answer, classify, logits, sampled, tokenizing
from core_conformance.margins import at_a_tie, parting
from core_conformance.model import must
from core_conformance.preconditions import goes_on
from core_conformance.subject import Subject

Pair = tuple[Answer, Answer]
_SEVERAL = 3  # answers: of fewer, there is no majority
_LONGEST = 8  # tokens that a label here may have, by which its tolerance is multiplied


@dataclass(frozen=True, slots=True)
class Difference:
    """Greedy answers that are not the same. ``clear``: the margin was read, and it was no tie."""

    text: str
    clear: bool


def difference(
    subject: Subject, pairs: Sequence[Pair], slack: float = 0.0, drawn: bool = False
) -> Difference | None:
    """How answers differ more than ties explain; None where they do not.

    Greedy ones have the same tokens up to a tie. Where the margin cannot be read, they part no
    more often than noise explains, and of several answers most tokens have to agree. For ``drawn``
    ones that is so in any case: not every draw beyond a border shows a tie.
    """
    unread, agreed = list[Pair](), 0
    for left, right in pairs:
        place, tie = parting(left, right), at_a_tie(subject, left, right, slack, drawn)
        if tie is False and not drawn:
            return Difference(_shown(left, right), True)
        agreed += len(left.ids) if place is None else place
        if tie:
            agreed += place is not None  # two tokens of one rank count as the same
        else:
            unread.append((left, right))
    half = agreed if drawn else agreed - 1
    most = half if len(pairs) >= _SEVERAL else agreed + len(unread)
    if not unread or len(unread) <= min(most, _rare(subject, agreed + len(unread))):
        return None
    return Difference(_shown(*unread[0]), False)


def _rare(subject: Subject, tokens: int) -> int:
    """How often so many tokens may part for the noise alone; with a small tolerance never.

    If the best logits are no denser than ten to a unit, the two best of a token are closer than
    twice the tolerance t with a probability of at most about 20t; twice that for luck.
    """
    noise = 40 * subject.model.info.logit_tolerance * tokens
    return 1 + int(noise) if noise > 0.02 else 0


def same_answers(subject: Subject, pairs: Sequence[Pair], what: str, slack: float = 0.0) -> None:
    """Greedy answers are the same, as far as `difference` asks for it.

    ``slack``: how much further than the tolerance two logits of a tie may be apart.
    """
    found = difference(subject, pairs, slack)
    must(found is None, f"{what}: {found.text if found else ''}")


def same_speech(subject: Subject, pairs: Sequence[Pair], what: str) -> None:
    """`same_answers` of which one has a token at least; `NotTestable` where the model is silent."""
    same_answers(subject, pairs, what)
    goes_on(subject, [answer.tokens for pair in pairs for answer in pair])


def same_draws(subject: Subject, pairs: Sequence[Pair], what: str) -> None:
    """Answers drawn with one seed have the same tokens; with a ``logit_tolerance``, most of them.

    A draw takes the token of some rank, say, and two logits of one rank are no further apart than
    the tolerance: so two draws that are at a tie with one another count as the same.
    """
    found = difference(subject, pairs, drawn=True)
    must(found is None, f"{what}: {found.text if found else ''}")


def rarely_different(subject: Subject, pairs: Sequence[Pair], what: str) -> None:
    """Answers of one token each are the same, but for some, fewer than `allowance` says."""
    parted = [(left, right) for left, right in pairs if left.ids != right.ids]
    if len(parted) > allowance(subject, pairs, always=1):
        must(False, f"{what}, in {len(parted)} of {len(pairs)} cases: {_shown(*parted[0])}")


def allowance(subject: Subject, pairs: Sequence[Pair], always: int) -> int:
    """How many pairs may differ: never more than half.

    Moving logits by t changes a draw with a probability of at most about 2t, twice that for luck.
    """
    draws = sum(max(1, len(left.tokens)) for left, _ in pairs)
    return min(len(pairs) // 2, always + int(4 * subject.tolerance * draws))


def same_logits(subject: Subject, left: Sequence[float], right: Sequence[float], what: str) -> None:
    """No two logits are further apart than the tolerance."""
    must(len(left) == len(right), f"{what}: {len(left)} logits against {len(right)}")
    # Not abs(a - b): two infinities of one sign are the same.
    apart = max((abs(a - b) for a, b in zip(left, right, strict=True) if a != b), default=0.0)
    must(
        apart <= subject.tolerance,
        f"{what}: logits differ by {apart:.3g}, more than logit_tolerance={subject.tolerance:g}",
    )


def log_softmax(row: Sequence[float]) -> list[float]:
    """Natural-log probabilities of a row of logits."""
    total = log_total(row)
    return [value - total for value in row]


def log_total(row: Sequence[float]) -> float:
    """The logarithm of the sum of exponentials."""
    top = max(row)
    return top + math.log(math.fsum(math.exp(value - top) for value in row))


def steps(subject: Subject, prompt: str, text: str) -> list[tuple[str, int]] | None:
    """For each token of ``text`` behind a prompt: the text in front of it, and its id.

    None where the tokenizer does not cut the text there: then there is nothing to compare.
    """
    encode = tokenizing(subject).encode
    head, whole = encode(prompt), encode(prompt + text)
    must(bool(whole), f"encode() has no ids for {prompt + text!r}")
    fronts: dict[int, str] = {}
    for end in range(len(text)):
        ids = encode(prompt + text[:end])
        if len(head) <= len(ids) < len(whole) and ids == whole[: len(ids)]:
            fronts.setdefault(len(ids), prompt + text[:end])
    places = range(len(head), len(whole))
    if whole[: len(head)] != head or not places or not all(place in fronts for place in places):
        return None
    return [(fronts[place], whole[place]) for place in places]


def logprobs_by_steps(subject: Subject, asked: Sequence[tuple[str, int]]) -> list[float]:
    """The log-probability of each token behind the text in front of it."""
    rows = logits(subject, [front for front, _ in asked])
    return [row[token_id] - log_total(row) for row, (_, token_id) in zip(rows, asked, strict=True)]


def later_steps(subject: Subject, prompt: str, answer: Answer, **options: Any) -> list[Pair]:
    """Each token of an answer against what ``classify`` says behind the text in front of it.

    Steps at which the tokenizer would read that text differently are left out.
    """
    encode = tokenizing(subject).encode
    head, fronts = encode(prompt), []
    for place in range(len(answer.tokens)):
        front = prompt + "".join(token.text for token in answer.tokens[:place])
        if encode(front) == [*head, *answer.ids[:place]]:
            fronts.append((place, front))
    rows = classify(subject, [front for _, front in fronts], **options)
    return [
        (Answer((answer.tokens[place],), None, front), sampled(row))
        for (place, front), row in zip(fronts, rows, strict=True)
    ]


def near(subject: Subject, left: float, right: float, tokens: int = 1) -> bool:
    """Whether two log-probabilities of so many tokens may be one: the total moves as well."""
    return left == right or abs(left - right) <= 2 * subject.tolerance * tokens + 1e-5


def label_logprobs(result: ClassifyResult) -> dict[str, float]:
    """The logprobs of a result for which labels were given."""
    must(isinstance(result.logprobs, dict), f"labels were given: no logprobs in {result}")
    return cast("dict[str, float]", result.logprobs)


def same_logprobs(
    subject: Subject, wanted: Mapping[str, float], result: ClassifyResult, what: str
) -> None:
    """The labels' joint log-probabilities are what was wanted."""
    for label, expected in wanted.items():
        found = label_logprobs(result)[label]
        must(
            near(subject, found, expected, _LONGEST),
            f"{what}: the logprob of {label!r} is {found:.5f}, not {expected:.5f}",
        )


def _shown(left: Answer, right: Answer) -> str:
    return (
        f"tokens {list(left.ids)} ({left.text!r}, {left.finish_reason}) "
        f"against {list(right.ids)} ({right.text!r}, {right.finish_reason})"
    )
