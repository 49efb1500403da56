"""The room in a KV cache: its free cells and sequences, and leases of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """Cells and sequences in use, until they are given back."""

    cells: int
    sequences: tuple[int, ...]


class Pool:
    """A counter of free cells and sequences. Callers take the most that they may need at once.

    So running work never runs out of cells.
    """

    def __init__(self, cells: int, sequences: int) -> None:
        self.cells, self.size = cells, cells
        self._free = list(range(sequences - 1, -1, -1))

    @property
    def sequences(self) -> int:
        """The number of free sequences."""
        return len(self._free)

    def has(self, cells: int, sequences: int) -> bool:
        """Return True if `take` would work."""
        return cells <= self.cells and sequences <= len(self._free)

    def take(self, cells: int, sequences: int) -> Lease:
        """Take a part. Raises ValueError if it is not free."""
        if not self.has(cells, sequences):
            raise ValueError(f"{cells} cells and {sequences} sequences are not free")
        self.cells -= cells
        return Lease(cells, tuple(self._free.pop() for _ in range(sequences)))

    def give(self, lease: Lease) -> None:
        """Give a part back, its sequences empty."""
        self.cells += lease.cells
        self._free.extend(lease.sequences)
