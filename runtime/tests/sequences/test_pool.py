"""The room in a KV cache."""

from __future__ import annotations

import pytest

from core_runtime.sequences.pool import Pool


def test_a_pool_gives_no_more_than_it_has() -> None:
    pool = Pool(10, 2)
    lease = pool.take(7, 1)
    assert (pool.cells, pool.sequences) == (3, 1)
    for cells, sequences in ((4, 1), (1, 2)):
        assert not pool.has(cells, sequences)
        with pytest.raises(ValueError, match="not free"):
            pool.take(cells, sequences)
    pool.give(lease)
    assert (pool.cells, pool.sequences) == (10, 2)
