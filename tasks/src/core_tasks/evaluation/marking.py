"""Marking of answers: the same words, the same number, or the likeliest choice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from core_tasks.evaluation.extraction import matched, number_in, shown, words_of
from core_tasks.evaluation.items import Item

Metric = Literal["exact", "numeric", "choice"]
METRICS: tuple[Metric, ...] = get_args(Metric)


@dataclass(frozen=True, slots=True)
class Marking:
    """Comparison of texts with the right answers.

    ``exact`` compares words (`words_of`), ``numeric`` the numbers of both (`number_in`).
    ``extract`` selects the pattern's last match in a model's text.
    """

    metric: Metric
    case: bool = True
    punctuation: bool = True
    extract: re.Pattern[str] | None = None

    def said(self, text: str) -> str | None:
        """Return the normalised answer in a model's text, or None."""
        if self.extract is not None:
            extracted = matched(self.extract, text)
            if extracted is None:
                return None
            text = extracted
        return self._form(text)

    def gold(self, item: Item) -> tuple[str, ...]:
        """Return the normalised right answers; those without an answer are omitted."""
        forms = (self._form(answer) for answer in item.answers)
        return tuple(dict.fromkeys(form for form in forms if form is not None))

    def _form(self, text: str) -> str | None:
        if self.metric == "numeric":
            number = number_in(text)
            return None if number is None else shown(number)
        return words_of(text, case=self.case, punctuation=self.punctuation)


def majority(answers: Sequence[str | None]) -> str | None:
    """Return the most frequent answer, the earliest of a tie. None does not count as a vote."""
    votes = Counter(answer for answer in answers if answer is not None)
    return max(votes, key=votes.__getitem__) if votes else None
