"""Many prompts at once: as many rows as there are slots take turns, the others wait for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from core.errors import CoreError, GenerationCancelled, RequestError
from core.kit.base import RequestClock
from core.options import GenerateConfig
from core.types import BatchResult, FinishReason, Token
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter


class Batch:
    """One call on many prompts; ``errors`` holds the error of each row that failed, by number."""

    def __init__(self, engine: Engine, prompts: Sequence[str], config: GenerateConfig) -> None:
        self._engine, self._clock = engine, RequestClock(config)
        self.meter = Meter()
        self.errors: dict[int, CoreError] = {}
        self.rows: dict[int, Generation] = {}
        self.count = len(prompts)
        for index, prompt in enumerate(prompts):
            try:
                self.rows[index] = engine.generation(prompt, config)
            except RequestError as error:
                self.errors[index] = error

    def tokens(self) -> Iterator[tuple[int, Token]]:
        """Yield row and token as they are made; a cancel before it has a slot ends all rows."""
        try:
            yield from self._tokens()
        except RequestError as error:
            self.errors.update({row: error for row in self.rows if row not in self.errors})

    def _tokens(self) -> Iterator[tuple[int, Token]]:
        waiting, active = deque(self.rows), list[int]()
        with (
            self._engine.slots.taken(self._check),
            self._engine.running(list(self.rows.values())),
        ):
            while waiting or active:
                while waiting and len(active) < self._engine.slots.count:
                    active += self._prefilled(waiting.popleft())
                active = self._wanted(active)
                stepped = self._engine.step([self.rows[row] for row in active], self.meter)
                for row, tokens in zip(active, stepped, strict=True):
                    yield from ((row, token) for token in tokens)
                active = [row for row in active if self.rows[row].reason is None]

    def results(self) -> list[BatchResult]:
        """Run every row to its end and return the results, in order."""
        rows: list[list[Token]] = [[] for _ in range(self.count)]
        for row, token in self.tokens():
            rows[row].append(token)
        return [self._result(row, tokens) for row, tokens in enumerate(rows)]

    def _result(self, row: int, tokens: list[Token]) -> BatchResult:
        error = self.errors.get(row)
        if error is None:
            return BatchResult(tuple(tokens), self.rows[row].reason or "error")
        cancelled = isinstance(error, GenerationCancelled)
        reason: FinishReason = "cancelled" if cancelled else "error"
        return BatchResult(tuple(tokens), reason, error)

    def _check(self) -> None:
        self._engine.check_open()
        self._clock.check()

    def _prefilled(self, row: int) -> list[int]:
        try:
            self._engine.prefill(self.rows[row], self.meter)
        except RequestError as error:
            self.errors[row] = error
            return []
        return [row]

    def _wanted(self, active: list[int]) -> list[int]:
        """Return the rows that continue; the others get their error."""
        wanted = []
        for row in active:
            try:
                self._engine.check(self.rows[row])
            except RequestError as error:
                self.errors[row] = error
            else:
                wanted.append(row)
        return wanted
