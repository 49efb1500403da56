"""Active learning: which text to label next, by what the model is unsure of and what is new."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from core_tasks.folds import text_key

_CANDIDATES = 20
_WITHOUT_MARGINS = 200
_CHARACTERS = 1000  # of a text that are compared


class Picker:
    """Picks the next text to label.

    Of the twenty texts with the smallest margins, the best minus the second probability, it picks
    the one that is least like those labelled already, by the words they share (uncertainty
    sampling with diversity). Without ``margins`` it picks the least like of up to 200 texts. A
    margin that is NaN belongs to a text that failed, and is picked last.
    """

    def __init__(self, texts: Sequence[str], margins: Sequence[float] | None = None) -> None:
        self._keys = [text_key(text) for text in texts]
        self._words = [frozenset(text[:_CHARACTERS].casefold().split()) for text in texts]
        rows = range(len(texts))
        self._order: list[int] = [*rows]
        if margins is not None:
            sure = [math.inf if math.isnan(margin) else margin for margin in margins]
            self._order.sort(key=sure.__getitem__)
        self._most = _WITHOUT_MARGINS if margins is None else _CANDIDATES

    def next(self, labelled: Collection[int], skipped: Collection[int] = ()) -> int | None:
        """Return the row to label next; None if every text is labelled or skipped."""
        known = {self._keys[row] for row in (*labelled, *skipped)}
        waiting = [row for row in self._order if self._keys[row] not in known]
        if not waiting:
            return None
        step = max(1, len(waiting) // self._most) if self._most == _WITHOUT_MARGINS else 1
        candidates = waiting[::step][: self._most]
        likeness = [self._likeness(row, labelled) for row in candidates]
        return candidates[likeness.index(min(likeness))]

    def _likeness(self, row: int, labelled: Collection[int]) -> float:
        """Return the Jaccard similarity of the words of a text and the nearest labelled text."""
        words = self._words[row]
        shares = (
            len(words & self._words[other]) / len(words | self._words[other] or {""})
            for other in labelled
        )
        nearest: float = max(shares, default=0.0)
        return nearest
