"""When an answer is right: the same words, the same number, or the likeliest choice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from core.evaluation.extraction import matched, number_in, shown, words_of
from core.evaluation.items import Item

Metric = Literal["exact", "numeric", "choice"]
METRICS: tuple[Metric, ...] = get_args(Metric)


@dataclass(frozen=True, slots=True)
class Marking:
    """How texts are compared with what is right.

    ``exact`` compares words (`words_of`), ``numeric`` the numbers that both come to (`number_in`).
    Of a model's text, ``extract`` takes what the pattern finds last.
    """

    metric: Metric
    case: bool = True
    punctuation: bool = True
    extract: re.Pattern[str] | None = None

    def said(self, text: str) -> str | None:
        """What a model's text answers, in the form in which it is compared; None where nothing."""
        if self.extract is not None:
            found = matched(self.extract, text)
            if found is None:
                return None
            text = found
        return self._form(text)

    def gold(self, item: Item) -> tuple[str, ...]:
        """The right answers in the same form; those that come to nothing are left out."""
        found = (self._form(answer) for answer in item.answers)
        return tuple(dict.fromkeys(each for each in found if each is not None))

    def _form(self, text: str) -> str | None:
        if self.metric == "numeric":
            number = number_in(text)
            return None if number is None else shown(number)
        return words_of(text, case=self.case, punctuation=self.punctuation)


def majority(said: Sequence[str | None]) -> str | None:
    """What most samples say; of equally many, what was said first. None is no vote."""
    votes = Counter(each for each in said if each is not None)
    return max(votes, key=votes.__getitem__) if votes else None
