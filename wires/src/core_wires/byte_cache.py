"""A cache of values with a limit in bytes."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_PART = 16  # of all the bytes: one value that takes more would drop too many others


class ByteCache(Generic[K, V]):
    """A cache of ``most`` bytes, from which the least recently used values are dropped first.

    Any thread may use it.
    """

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self._most = most
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the value of this key, or None if it is not cached."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: K, value: V) -> None:
        """Cache a value, unless it is large compared with the limit."""
        size = bytes_of(key) + bytes_of(value)
        if size * _PART > self._most:
            return
        with self._lock:
            self.bytes += size - self._values.pop(key, (value, 0))[1]
            self._values[key] = value, size
            while self.bytes > self._most:
                self.bytes -= self._values.popitem(last=False)[1][1]


def bytes_of(value: object) -> int:
    """Return the memory of a value and its contents: of dataclasses, mappings and sequences."""
    size = sys.getsizeof(value)
    if isinstance(value, Mapping):
        return size + sum(bytes_of(key) + bytes_of(item) for key, item in value.items())
    if isinstance(value, tuple | list | frozenset):
        return size + sum(map(bytes_of, value))
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        return size + sum(bytes_of(getattr(value, name)) for name in names)
    return size
