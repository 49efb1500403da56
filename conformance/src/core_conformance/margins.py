"""Where two greedy answers part: at a tie, behind a clear lead, or where nobody can see which.

The contract allows greedy runs to part where the two best logits are no further apart than
``logit_tolerance`` in either run. So the one that is best in one run and the one that is best in
the other are, in any single run, at most two tolerances apart, and as near to the best.
"""

from __future__ import annotations

import heapq

from core.capability import Capability
from core.types import Token
from core_conformance.answers import Answer, logits, scoring, tokenizing
from core_conformance.subject import Subject


def parting(left: Answer, right: Answer) -> int | None:
    """The first place where two answers have not the same token; None where there is none."""
    if left.ids == right.ids:
        return None
    pairs = enumerate(zip(left.ids, right.ids, strict=False))
    shorter = min(len(left.ids), len(right.ids))
    return next((place for place, (one, other) in pairs if one != other), shorter)


def at_a_tie(
    subject: Subject, left: Answer, right: Answer, slack: float = 0.0, drawn: bool = False
) -> bool | None:
    """Whether two answers that part do so at a tie; None where the margin cannot be read.

    It is read from the tokens' log-probabilities, from the logits there, or from scores: what of
    these the backend declares. ``slack`` is added to what the tolerance allows. A tie of greedy
    answers is one of the best; of ``drawn`` ones, of the two that were drawn.
    """
    place = parting(left, right)
    if place is None:
        return True
    tokens = [answer.tokens[place] for answer in (left, right) if place < len(answer.tokens)]
    if any(_cut_short(answer, place) for answer in (left, right)):
        return False
    reach = 2 * subject.tolerance + slack
    if len(tokens) == 2 and None not in (logprobs := [token.logprob for token in tokens]):
        return abs((logprobs[0] or 0.0) - (logprobs[1] or 0.0)) <= reach
    if drawn and len(tokens) < 2:
        return None
    return _read(subject, left if left.prompt else right, place, tokens, reach, drawn)


def _cut_short(answer: Answer, place: int) -> bool:
    """Whether an answer ended there for another reason than the token that was drawn."""
    return place == len(answer.tokens) and answer.finish_reason not in ("stop", None)


def _read(
    subject: Subject, answer: Answer, place: int, tokens: list[Token], reach: float, drawn: bool
) -> bool | None:
    """The margin as other operations tell it, asked behind the text in front of the parting.

    Where it is not certain that this text stands for the same tokens, only a tie is believed.
    """
    if not answer.prompt:
        return None
    said = "".join(token.text for token in answer.tokens[:place])
    front = answer.prompt + said if place else answer.prompt  # one that chat rendered stays so
    exact = place == 0 or _stands_for(subject, front, answer, place)
    tie = None
    if subject.declares(Capability.CLASSIFY, Capability.LOGITS):
        row = logits(subject, [front])[0]
        asked = [row[token.id] for token in tokens] + ([] if drawn else heapq.nlargest(2, row))
        tie = max(asked) - min(asked) <= reach
    elif subject.declares(Capability.SCORING) and len(tokens) == 2:
        tie = _tie_of_scores(subject, front, [token.text for token in tokens], 2 * reach)
    return tie if exact or tie else None


def _stands_for(subject: Subject, front: str, answer: Answer, place: int) -> bool:
    if not subject.declares(Capability.TOKENIZING):
        return False
    encode = tokenizing(subject).encode
    return encode(front) == [*encode(answer.prompt), *answer.ids[:place]]


def _tie_of_scores(subject: Subject, front: str, texts: list[str], reach: float) -> bool | None:
    """The same of two texts that are a token each; None where they are not."""
    if not all(texts):
        return None
    found = [score.token_logprobs for score in scoring(subject).score([front] * 2, texts)]
    if any(len(logprobs) != 1 for logprobs in found):
        return None
    return abs(found[0][0] - found[1][0]) <= reach
