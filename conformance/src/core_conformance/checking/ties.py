"""Where two answers part, and whether they do so at a tie, as far as anybody can see.

The margin of two tokens is read from log-probabilities, from logits, or from scores.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from core.protocols import Capability
from core.types import Token
from core_conformance.checking.ask import Answer, logits, scoring, tokenizing
from core_conformance.checking.subject import Subject


def parting(left: Answer, right: Answer) -> int | None:
    """Return the first place where two answers have different tokens.

    None if they have the same.
    """
    if left.ids == right.ids:
        return None
    pairs = enumerate(zip(left.ids, right.ids, strict=False))
    shorter = min(len(left.ids), len(right.ids))
    return next((place for place, (one, other) in pairs if one != other), shorter)


def at_a_tie(
    subject: Subject,
    left: Answer,
    right: Answer,
    slack: float = 0.0,
    drawn: bool = False,
    stops: Sequence[str] = (),
) -> bool | None:
    """Return True when two answers part at a tie, or not at all; None if the margin cannot be read.

    The margin is read from the tokens' log-probabilities, from the logits there, or from scores,
    whichever of these the backend declares. ``slack`` is added to what the tolerance allows. A tie
    of greedy answers is one of the best tokens; of ``drawn`` ones, of the two that were drawn. One
    of the ``stops`` may have swallowed the last tokens of the shorter answer, so that the two part
    after the place that is seen: then only a tie is believed.
    """
    place = parting(left, right)
    if place is None:
        return True

    # A timeout, a cancel or the context ended one of them: that is not a tie.
    tokens = [answer.tokens[place] for answer in (left, right) if place < len(answer.tokens)]
    if any(_cut_short(answer, place) for answer in (left, right)):
        return False

    # The tokens' log-probabilities give the margin, if both answers have them.
    reach = 2 * subject.tolerance + slack
    if len(tokens) == 2 and None not in (logprobs := [token.logprob for token in tokens]):
        return abs((logprobs[0] or 0.0) - (logprobs[1] or 0.0)) <= reach

    # Otherwise the logits, or the scores, after the text before the parting do.
    if drawn and len(tokens) < 2:
        return None
    tie = _read(subject, left if left.prompt else right, place, tokens, reach, drawn)
    swallowed = len(tokens) == 1 and any(_begins(tokens[0].text, stop) for stop in stops)
    return tie or None if swallowed else tie


def _begins(text: str, stop: str) -> bool:
    """Return True when a stop string may begin within this token."""
    return any(text.endswith(stop[:size]) for size in range(1, len(stop) + 1))


def _cut_short(answer: Answer, place: int) -> bool:
    """Return True for an answer that ended at ``place`` for another reason than the token drawn."""
    return place == len(answer.tokens) and answer.finish_reason not in ("stop", None)


def _read(
    subject: Subject, answer: Answer, place: int, tokens: list[Token], reach: float, drawn: bool
) -> bool | None:
    """Return the margin that other operations give after the text before the parting.

    If this text may encode to other tokens, only a tie is believed.
    """
    if not answer.prompt:
        return None

    text = "".join(token.text for token in answer.tokens[:place])
    front = answer.prompt + text if place else answer.prompt  # one that chat rendered stays so
    exact = place == 0 or _stands_for(subject, front, answer, place)

    # One call of classify or of score gives the margin.
    tie = None
    if subject.declares(Capability.CLASSIFY, Capability.LOGITS):
        row = logits(subject, [front])[0]
        compared = [row[token.id] for token in tokens] + ([] if drawn else heapq.nlargest(2, row))
        tie = max(compared) - min(compared) <= reach
    elif subject.declares(Capability.SCORING) and len(tokens) == 2:
        tie = _tie_of_scores(subject, front, [token.text for token in tokens], 2 * reach)
        exact = exact and all(_spells(subject, front, token) for token in tokens)

    return tie if exact or tie else None


def _stands_for(subject: Subject, front: str, answer: Answer, place: int) -> bool:
    if not subject.declares(Capability.TOKENIZING):
        return False
    encode = tokenizing(subject).encode
    return encode(front) == [*encode(answer.prompt), *answer.ids[:place]]


def _spells(subject: Subject, front: str, token: Token) -> bool:
    """Return whether a token's text is that very token there.

    Two may share a text, and texts merge.
    """
    if not subject.declares(Capability.TOKENIZING):
        return False
    encode = tokenizing(subject).encode
    return encode(front + token.text) == [*encode(front), token.id]


def _tie_of_scores(subject: Subject, front: str, texts: list[str], reach: float) -> bool | None:
    """Return True when scores show a tie of two texts; None unless each text is a single token."""
    if not all(texts):
        return None
    rows = [score.token_logprobs for score in scoring(subject).score([front] * 2, texts)]
    if any(len(logprobs) != 1 for logprobs in rows):
        return None
    return abs(rows[0][0] - rows[1][0]) <= reach
