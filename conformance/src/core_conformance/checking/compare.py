"""Comparison of answers, and what a distribution says.

Two greedy answers part at a tie, after a clear lead, or where it is not visible which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from core.types import ClassifyResult
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import Answer, classify, logits, sampled, tokenizing
from core_conformance.checking.check import Violation, count_compared, must, testable, well_formed
from core_conformance.checking.subject import Subject
from core_conformance.checking.ties import at_a_tie, parting

Pair = tuple[Answer, Answer]
_SEVERAL = 3  # answers: fewer have no majority
LONGEST_LABEL = 8
"""Tokens that a label here may have, by which its tolerance is multiplied."""
_MOST_OF_A_STATE = 0.25  # of its length, that two runs of one prompt may differ by at most

_ALIKE = (
    "the model gives the same output after every prompt tried, so swapped prompts would not show: "
    "use a model whose output depends on the prompt"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Two answers that differ; ``clear`` if their margin was read and was not a tie."""

    text: str
    clear: bool


def difference(
    subject: Subject,
    pairs: Sequence[Pair],
    slack: float = 0.0,
    drawn: bool = False,
    stops: Sequence[str] = (),
) -> Difference | None:
    """Return the first pair of answers that differs more than ties explain, or None.

    Greedy answers have the same tokens up to a tie. Where the margin cannot be read, they part no
    more often than noise explains, and of several answers most tokens have to agree. For ``drawn``
    ones that is so in any case: not every draw beyond a border shows a tie. ``stops``: the
    requested stop strings. Every token that is checked counts as compared.
    """
    unread, agreed = list[tuple[int, Pair]](), 0

    # Count the tokens that agree, and keep the pairs whose margin cannot be read.
    for number, (left, right) in enumerate(pairs):
        place, tie = parting(left, right), at_a_tie(subject, left, right, slack, drawn, stops)
        if tie is False and not drawn:
            count_compared(agreed + 1)
            return Difference(_placed(number, left, right), True)
        agreed += len(left.ids) if place is None else place
        if tie:
            agreed += place is not None  # two tokens of one rank count as the same
        else:
            unread.append((number, (left, right)))
    count_compared(agreed)

    # The pairs that are left are excused while they are few: no more than noise explains, and of
    # several answers fewer than the tokens that agree.
    half = agreed if drawn else agreed - 1
    most = half if len(pairs) >= _SEVERAL else agreed + len(unread)
    if not unread or len(unread) <= min(most, _rare(subject, agreed + len(unread))):
        return None
    number, parted = unread[0]
    return Difference(_placed(number, *parted), False)


def _rare(subject: Subject, tokens: int) -> int:
    """Return the number of partings that noise alone explains in this many tokens.

    0 at a small tolerance.

    If the best logits are at most ten to a unit, the two best of a token are closer than
    twice the tolerance t with a probability of at most about 20t; twice that for luck.
    """
    noise = 40 * subject.stated_tolerance * tokens
    return 1 + int(noise) if noise > 0.02 else 0


def same_answers(
    subject: Subject, pairs: Sequence[Pair], what: str, stops: Sequence[str] = ()
) -> None:
    """Raise `Violation` unless greedy answers are the same, as far as `difference` asks for it."""
    deviation = difference(subject, pairs, stops=stops)
    if deviation is not None:
        raise Violation(f"{what}: {deviation.text}")


def same_rows(
    subject: Subject, pairs: Sequence[Pair], what: str, stops: Sequence[str] = ()
) -> None:
    """Check `same_answers`, and text, ending and log-probabilities where the tokens are the same.

    So a row that was computed otherwise is found although its best token stays the best.
    """
    same_answers(subject, pairs, what, stops)
    for left, right in pairs:
        same_numbers(subject, left, right, what)
        reasons = {left.finish_reason, right.finish_reason} - {None}
        must(
            left.ids != right.ids or (left.text == right.text and len(reasons) < 2),
            f"{what}: {_shown(left, right)}",
        )


def same_numbers(subject: Subject, left: Answer, right: Answer, what: str) -> None:
    """Raise `Violation` unless the same tokens of two answers have the same log-probabilities."""
    for one, other in zip(left.tokens, right.tokens, strict=False):
        if one.id != other.id:
            return  # at a tie: from here on the two read different texts
        must(
            (one.logprob is None) == (other.logprob is None)
            and near(subject, one.logprob or 0.0, other.logprob or 0.0),
            f"{what}: got {other!r}, expected {one!r}",
        )


def same_speech(subject: Subject, pairs: Sequence[Pair], what: str) -> None:
    """Check `same_answers`; raise `NotTestable` where no answer has a token."""
    same_answers(subject, pairs, what)
    goes_on(subject, [answer.tokens for pair in pairs for answer in pair])


def apart(given: Sequence[object]) -> None:
    """Raise `NotTestable` where what several prompts gave is all the same.

    To be called when it was compared: one in another's place would not have been seen.
    """
    testable(any(one != given[0] for one in given), _ALIKE)


def same_draws(subject: Subject, pairs: Sequence[Pair], what: str) -> None:
    """Raise `Violation` unless draws with one seed are the same; with a tolerance, most of them.

    A draw takes the token of some rank, for example, and two logits of one rank differ by at most
    the tolerance: so two draws at a tie with one another count as the same.
    """
    deviation = difference(subject, pairs, drawn=True)
    if deviation is not None:
        raise Violation(f"{what}: {deviation.text}")


def rarely_different(subject: Subject, pairs: Sequence[Pair], what: str) -> None:
    """Raise `Violation` when more answers of one token differ than `allowance` grants."""
    count_compared(sum(bool(left.ids or right.ids) for left, right in pairs))
    parted = [(left, right) for left, right in pairs if left.ids != right.ids]
    if len(parted) > allowance(subject, pairs, always=1):
        shown = _shown(*parted[0])
        raise Violation(f"{what}, in {len(parted)} of {len(pairs)} cases: {shown}")


def allowance(subject: Subject, pairs: Sequence[Pair], always: int) -> int:
    """Return the number of pairs that may differ: never more than half.

    Moving logits by t changes a draw with a probability of at most about 2t, twice that for luck.
    """
    draws = sum(max(1, len(left.tokens)) for left, _ in pairs)
    return min(len(pairs) // 2, always + int(4 * subject.tolerance * draws))


def same_logits(subject: Subject, left: Sequence[float], right: Sequence[float], what: str) -> None:
    """Raise `Violation` when two logits are further apart than the tolerance."""
    well_formed(len(left) == len(right), f"{what}: {len(left)} logits against {len(right)}")
    count_compared(len(left))
    # Not abs(a - b): two infinities of one sign are the same.
    farthest = max((abs(a - b) for a, b in zip(left, right, strict=True) if a != b), default=0.0)
    if not farthest <= subject.tolerance:  # NaN is not near any number
        allowed = f"more than logit_tolerance={subject.tolerance:g}"
        place = _first_apart(subject, left, right)
        raise Violation(
            f"{what}: logits differ by {farthest:.3g}, {allowed}, first at token {place}"
        )


def same_states(subject: Subject, left: Sequence[float], right: Sequence[float], what: str) -> None:
    """Raise `Violation` when two hidden states are further apart than the tolerance allows."""
    distance = math.dist(left, right) if len(left) == len(right) else math.inf
    length = math.hypot(*right)
    must(
        distance <= min(subject.tolerance, _MOST_OF_A_STATE) * length,
        f"{what} differ by {distance:.4g}, where the state is {length:.4g} long and the model's "
        f"tolerance {subject.stated_tolerance:g}",
    )


def log_softmax(row: Sequence[float]) -> list[float]:
    """Return the natural-log probabilities of a row of logits."""
    total = log_total(row)
    return [value - total for value in row]


def log_total(row: Sequence[float]) -> float:
    """Return the logarithm of the sum of exponentials."""
    top = max(row)
    return top + math.log(math.fsum(math.exp(value - top) for value in row))


def steps(subject: Subject, prompt: str, text: str) -> list[tuple[str, int]] | None:
    """Return, for each token of ``text`` after a prompt, the text before it and its id.

    None where the tokenizer does not cut the text there: then there is nothing to compare.
    """
    encode = tokenizing(subject).encode
    head, whole = encode(prompt), encode(prompt + text)
    well_formed(bool(whole), f"encode() has no ids for {prompt + text!r}")

    # A beginning of the text belongs to each token whose border lies at its end.
    fronts: dict[int, str] = {}
    for end in range(len(text)):
        ids = encode(prompt + text[:end])
        if len(head) <= len(ids) < len(whole) and ids == whole[: len(ids)]:
            fronts.setdefault(len(ids), prompt + text[:end])

    # The prompt's own ids must stay, and every token's border must lie between two characters.
    places = range(len(head), len(whole))
    if whole[: len(head)] != head or not places or not all(place in fronts for place in places):
        return None
    return [(fronts[place], whole[place]) for place in places]


def logprobs_by_steps(subject: Subject, requested: Sequence[tuple[str, int]]) -> list[float]:
    """Return the log-probability of each token after the text before it."""
    rows = logits(subject, [front for front, _ in requested])
    return [
        row[token_id] - log_total(row) for row, (_, token_id) in zip(rows, requested, strict=True)
    ]


def later_steps(subject: Subject, prompt: str, answer: Answer, **options: Any) -> list[Pair]:
    """Pair each token of an answer with the one ``classify`` gives after the text before it.

    Steps at which the tokenizer would read that text differently are left out.
    """
    encode = tokenizing(subject).encode
    head, fronts = encode(prompt), []

    # Keep the steps whose text the tokenizer reads back as the very tokens of the answer.
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
    """Return True if two log-probabilities of ``tokens`` tokens may be equal.

    The total moves as well.
    """
    return left == right or abs(left - right) <= 2 * subject.tolerance * tokens + 1e-5


def label_logprobs(result: ClassifyResult) -> dict[str, float]:
    """Return the logprobs of a result for which labels were given.

    For one of label sentences, which has no token, the logarithms of its probabilities.
    """
    if result.token is None and result.probabilities:
        return {label: _log(share) for label, share in result.probabilities.items()}
    well_formed(isinstance(result.logprobs, dict), f"labels were given: no logprobs in {result}")
    return cast("dict[str, float]", result.logprobs)


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


def best_label(subject: Subject, wanted: ClassifyResult, result: ClassifyResult, what: str) -> None:
    """Raise `Violation` unless the label is, by what was ``wanted``, as likely as any other."""
    logprobs = label_logprobs(wanted)
    best = max(logprobs, key=logprobs.__getitem__)
    must(
        result.label in logprobs
        and near(subject, logprobs[result.label or ""], logprobs[best], LONGEST_LABEL),
        f"{what}: the label is {result.label!r}, but the likeliest one is {best!r}: {logprobs}",
    )


def same_logprobs(
    subject: Subject, wanted: Mapping[str, float], result: ClassifyResult, what: str
) -> None:
    """Raise `Violation` unless the labels' joint log-probabilities are the wanted ones."""
    for label, expected in wanted.items():
        logprob = label_logprobs(result)[label]
        must(
            near(subject, logprob, expected, LONGEST_LABEL),
            f"{what}: the logprob of {label!r} is {logprob:.5f}, not {expected:.5f}",
        )


def _first_apart(subject: Subject, left: Sequence[float], right: Sequence[float]) -> int | None:
    pairs = enumerate(zip(left, right, strict=True))
    near = subject.tolerance
    return next((id for id, (a, b) in pairs if a != b and not abs(a - b) <= near), None)


def _placed(number: int, left: Answer, right: Answer) -> str:
    """Return the difference, with the answer's number, its prompt and the first differing token."""
    text = left.prompt or right.prompt
    prompt = f" after {text!r:.80}" if text else ""
    return f"answer {number}{prompt}, from token {parting(left, right)} on: {_shown(left, right)}"


def _shown(left: Answer, right: Answer) -> str:
    return (
        f"tokens {list(left.ids)} ({left.text!r}, {left.finish_reason}) "
        f"against {list(right.ids)} ({right.text!r}, {right.finish_reason})"
    )
