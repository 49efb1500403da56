"""The blocks of the KV cache, and the sequences that list them.

A block holds the keys and values of a few consecutive positions in all layers. Sequences that
begin alike share blocks; one that writes into a shared block copies it first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

CopyBlock = Callable[[int, int], None]


@dataclass(slots=True)
class Table:
    """The blocks of one sequence, which holds ``size`` positions."""

    blocks: list[int] = field(default_factory=list)
    size: int = 0


class BlockTables:
    """The tables of all sequences over ``count`` blocks of ``width`` positions.

    ``copy_block(source, target)`` copies keys and values.
    """

    def __init__(self, count: int, width: int, copy_block: CopyBlock) -> None:
        self.width = width
        self._free = list(range(count - 1, -1, -1))  # the lowest first: others stay untouched
        self._users = [0] * count
        self._tables: dict[int, Table] = {}
        self._copy_block = copy_block

    def table(self, sequence: int) -> Table:
        """Return the table of a sequence, which may be empty."""
        return self._tables.setdefault(sequence, Table())

    def end(self, sequence: int) -> int:
        """Return the number of positions that a sequence holds."""
        return self._tables[sequence].size if sequence in self._tables else 0

    def reserve(self, sequence: int, tokens: int) -> None:
        """Give a sequence exclusive blocks for ``tokens`` more positions.

        Raises MemoryError if no block is free.
        """
        table = self.table(sequence)
        if table.size % self.width:
            self._own_last(table)
        while len(table.blocks) * self.width < table.size + tokens:
            table.blocks.append(self._take())

    def grow(self, sequence: int, tokens: int) -> None:
        """Count positions that were written into reserved blocks."""
        self.table(sequence).size += tokens

    def share(self, source: int, target: int) -> None:
        """Let an empty sequence begin with all positions of another one."""
        table = self.table(source)
        for block in table.blocks:
            self._users[block] += 1
        self._tables[target] = Table(list(table.blocks), table.size)

    def cut(self, sequence: int, size: int) -> None:
        """Forget the positions from ``size`` on, and the blocks reserved for later ones."""
        table = self._tables.get(sequence)
        if table is None:
            return
        table.size = min(table.size, size)
        needed = -(-table.size // self.width)
        while len(table.blocks) > needed:
            self._give(table.blocks.pop())
        if not table.size:
            del self._tables[sequence]

    def _own_last(self, table: Table) -> None:
        last = table.size // self.width
        block = table.blocks[last]
        if self._users[block] > 1:
            own = self._take()
            self._copy_block(block, own)
            self._give(block)
            table.blocks[last] = own

    def _take(self) -> int:
        if not self._free:
            raise MemoryError("no block of the KV cache is free")
        block = self._free.pop()
        self._users[block] = 1
        return block

    def _give(self, block: int) -> None:
        self._users[block] -= 1
        if not self._users[block]:
            self._free.append(block)
