"""Which prompts share a prefix."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core_runtime.batches import PrefixGroup, by_prefix, shared_prefixes

prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=60), max_size=30)
Prompts = list[list[int]]


def limits_of(rows: Prompts) -> list[int]:
    return [len(row) - 1 for row in rows]


@given(prompts, st.lists(st.lists(st.integers(0, 2), max_size=50), min_size=1, max_size=3))
def test_groups_divide_the_rows_and_share_what_they_say(rows: Prompts, heads: Prompts) -> None:
    rows = [heads[index % len(heads)] + row for index, row in enumerate(rows)]
    limits = limits_of(rows)
    groups = shared_prefixes(rows, limits)
    assert sorted(row for group in groups for row in group.rows) == list(range(len(rows)))
    for group in groups:
        assert len({tuple(rows[row][: group.prefix]) for row in group.rows}) == 1
        assert all(group.prefix <= limits[row] for row in group.rows)
    assert sum(group.prefix == 0 for group in groups) <= 1
    common = min(limits, default=0)
    while len({tuple(row[:common]) for row in rows}) > 1:
        common -= 1
    saved = sum((len(group.rows) - 1) * group.prefix - 32 for group in groups if group.prefix)
    assert saved >= (len(rows) - 1) * common - 32  # never worse than what all have in common
    assert saved >= 0


def test_one_instruction_is_one_group() -> None:
    rows = [[1] * 40 + [9, index] for index in range(20)]
    assert shared_prefixes(rows, limits_of(rows)) == [PrefixGroup(41, tuple(range(20)))]


def test_a_few_templates_are_a_group_each() -> None:
    rows = [[index % 3] * 40 + [50 + index] for index in range(30)]
    groups = shared_prefixes(rows, limits_of(rows))
    assert sorted((group.prefix, len(group.rows)) for group in groups) == [(40, 10)] * 3


def test_prompts_without_a_common_beginning_are_left_together() -> None:
    rows = [[index, 1, 2, 3] for index in range(20)]
    assert shared_prefixes(rows, limits_of(rows)) == [PrefixGroup(0, tuple(range(20)))]


def test_a_common_beginning_that_is_too_short_to_pay_is_left() -> None:
    rows = [[5, 6, index] for index in range(10)]
    assert shared_prefixes(rows, limits_of(rows)) == [PrefixGroup(0, tuple(range(10)))]


def test_a_device_on_which_a_pass_costs_more_makes_fewer_groups() -> None:
    rows = [[1] * 40 + [index % 3] * 40 + [50 + index] for index in range(30)]
    assert len(shared_prefixes(rows, limits_of(rows))) == 3
    assert [group.prefix for group in shared_prefixes(rows, limits_of(rows), 1000)] == [40]
    assert [group.prefix for group in shared_prefixes(rows, limits_of(rows), 2000)] == [0]


def test_the_same_prompt_many_times_is_computed_once_but_for_its_end() -> None:
    rows = [[4] * 50] * 12
    assert shared_prefixes(rows, limits_of(rows)) == [PrefixGroup(49, tuple(range(12)))]


def test_nothing_and_one() -> None:
    assert shared_prefixes([], []) == []
    assert shared_prefixes([[1, 2]], [1]) == [PrefixGroup(0, (0,))]


def test_rows_come_with_the_tokens_that_they_share() -> None:
    ids = [[7, 8] * 20 + [index] for index in range(9)] + [[1], [2]]
    names = [f"row {index}" for index in range(11)]
    assert list(by_prefix(names, ids, limits_of(ids))) == [
        ([7, 8] * 20, names[:9]),
        ([], names[9:]),
    ]
