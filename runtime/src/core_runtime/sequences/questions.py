"""One call over rows: a question per row, run in passes, and the rows' results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from core.kit.base import RequestClock
from core_runtime.batches import by_prefix
from core_runtime.sequences.passes import LogitsQuestion, Passes, ask

R = TypeVar("R")
A = TypeVar("A")
R_co = TypeVar("R_co", covariant=True)
A_co = TypeVar("A_co", covariant=True)


class RowQuestion(LogitsQuestion, Protocol[R_co, A_co]):
    """The question of one row."""

    @property
    def row(self) -> R_co:
        """The row."""
        ...

    @property
    def shareable(self) -> int:
        """The largest number of first tokens that may be another row's, too."""
        ...

    def result(self) -> A_co:
        """Return the row's result, or the error that ended it."""
        ...


class RowQuestions(Generic[R, A]):
    """The `core_runtime.equal_rows.RowComputation` of one call."""

    def __init__(
        self, passes: Passes, clock: RequestClock, question_of: Callable[[R], RowQuestion[R, A]]
    ) -> None:
        self._passes, self._clock, self._question_of = passes, clock, question_of
        self.reused = 0

    def results(self, blocks: Iterable[Sequence[R]]) -> Iterator[tuple[R, A]]:
        """Yield each row with its result; rows with a shared prefix come together."""
        for rows in blocks:
            questions = [self._question_of(row) for row in rows]
            prompts = [question.ids for question in questions]
            limits = [question.shareable for question in questions]
            with self._passes as passes:
                for prefix, group in by_prefix(questions, prompts, limits):
                    self.reused += ask(passes, prefix, group, self._clock).cached
                    yield from ((question.row, question.result()) for question in group)
