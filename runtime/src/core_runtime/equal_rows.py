"""Deduplication of rows, in a call and across the blocks of its list or stream.

Logs repeat themselves: a repeated row gets a copy of the first one's result. A row that draws a
token without a seed equals no other row, because each draws separately.
"""

from __future__ import annotations

import copy
from array import array
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from sys import getsizeof
from typing import Any, Generic, Protocol, TypeVar

from core_runtime.request import own_error

_MOST = 2**26  # bytes of cached results: about 50,000 rows with labels
_ENTRY = 500  # bytes of a cached result without its key and the values of its fields
_NUMBER = getsizeof(1.0)

_CHANGEABLE = (dict, list, array, Exception)

Key = tuple[bytes, Hashable]
"""The tokens of a row, and everything else that determines its result."""


class Repeatable(Protocol):
    """A row that can run."""

    @property
    def index(self) -> int:
        """The row's place in its call."""
        ...

    @property
    def ids(self) -> Sequence[int]:
        """The tokens to run."""
        ...

    @property
    def key(self) -> Key:
        """Key of the row's result: rows of one call with equal keys have equal results."""
        ...


class RowResult(Protocol):
    """The result of a row: a frozen dataclass, whose fields may hold mutable values."""

    @property
    def __match_args__(self) -> tuple[str, ...]:
        """The names of the fields, in the order in which its class takes them."""
        ...

    @property
    def error(self) -> Exception | None:
        """The reason why the row has no values; None if it has them."""
        ...


R = TypeVar("R", bound=Repeatable)
A = TypeVar("A", bound=RowResult)
A_co = TypeVar("A_co", bound=RowResult, covariant=True)


class RowComputation(Protocol[R, A_co]):
    """Computation of the results of rows; ``reused`` counts tokens that it did not compute."""

    @property
    def reused(self) -> int:
        """The number of tokens of answered rows that did not have to be computed."""
        ...

    def results(self, blocks: Iterable[Sequence[R]]) -> Iterator[tuple[R, A_co]]:
        """Yield each row's result, in whatever order."""
        ...


class EqualRows(Generic[R, A]):
    """A `RowComputation` that passes only the first of equal rows to another one.

    Results are cached between calls of `results`, in at most ``most`` bytes. Errors are not cached:
    memory may suffice the next time. ``given_out``: callers get the results of one call before the
    next one, and may change them.
    """

    def __init__(
        self, reader: RowComputation[R, A], most: int = _MOST, *, given_out: bool = False
    ) -> None:
        self._reader, self._given_out = reader, given_out
        self._remembered = Remembered[A](most)
        self._repeats: dict[Key, list[R]] = {}  # of each row that is being computed
        self._keys: dict[int, Key] = {}  # of those rows, by their index
        self._answered: list[tuple[R, A]] = []
        self._repeated = 0

    @property
    def reused(self) -> int:
        """The number of tokens that were not computed, including the tokens of repeats."""
        return self._reader.reused + self._repeated

    def results(self, blocks: Iterable[Sequence[R]]) -> Iterator[tuple[R, A]]:
        """Yield each row's result; a repeat gets a copy of the first one's."""
        for row, result in self._reader.results(self._distinct(blocks)):
            key = self._keys.pop(row.index)
            repeats = self._repeats.pop(key)
            if result.error is None:
                self._remembered.put(key, own_result(result) if self._given_out else result)
            if repeats:
                self._answered += [(repeat, self._again(repeat, result)) for repeat in repeats]

            yield row, result
            if self._answered:
                yield from self._taken()

        yield from self._taken()  # the repeats of blocks without new rows

    def _taken(self) -> list[tuple[R, A]]:
        taken, self._answered = self._answered, []
        return taken

    def _distinct(self, blocks: Iterable[Sequence[R]]) -> Iterator[Sequence[R]]:
        """Yield the rows of each block that have to be computed."""
        for block in blocks:
            new: list[R] = []
            for row in block:
                key = row.key
                known = self._remembered.get(key)

                if known is not None:
                    self._answered.append((row, self._again(row, known)))
                elif key in self._repeats:
                    self._repeats[key].append(row)
                else:
                    self._repeats[key] = []
                    self._keys[row.index] = key
                    new.append(row)

            if new:
                yield new

    def _again(self, row: R, result: A) -> A:
        if result.error is None:
            self._repeated += len(row.ids)
        return own_result(result)


class Remembered(Generic[A]):
    """A cache of results, bounded in bytes: the least recently used one is dropped first.

    Results of one call have the same size, because they have the same labels and logits. ``used``
    is the approximate number of bytes.
    """

    def __init__(self, most: int) -> None:
        self._most, self.used = most, 0
        self._results: OrderedDict[Key, A] = OrderedDict()
        self._result_bytes = 0  # bytes of a result without its key

    def get(self, key: Key) -> A | None:
        """Return the result of an equal row, or None; copy it before handing it out."""
        result = self._results.get(key)
        if result is not None:
            self._results.move_to_end(key)
        return result

    def put(self, key: Key, result: A) -> None:
        """Cache the result of a row."""
        self._result_bytes = self._result_bytes or _ENTRY + sum(map(_bytes, _values(result)))
        size = self._result_bytes + len(key[0])
        if size > self._most:
            return

        self._results[key] = result
        self.used += size
        while self.used > self._most:
            self.used -= self._result_bytes + len(self._results.popitem(last=False)[0][0])


def own_result(result: A) -> A:
    """Return an equal result that shares no mutable value with the first."""
    values = _values(result)
    changed = False
    for place, value in enumerate(values):
        if isinstance(value, _CHANGEABLE):
            values[place] = own_error(value) if value is result.error else copy.copy(value)
            changed = True
    return type(result)(*values) if changed else result


def _bytes(value: object) -> int:
    """Return the bytes of a field's value.

    The size of a dictionary or tuple does not include its numbers.
    """
    numbers = len(value) if isinstance(value, (dict, list, tuple)) else 0
    return getsizeof(value) + numbers * _NUMBER


def _values(result: RowResult) -> list[Any]:
    return [getattr(result, name) for name in result.__match_args__]
