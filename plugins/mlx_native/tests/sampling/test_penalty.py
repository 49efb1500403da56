"""The repeat penalty, and what rows have seen as they come and go."""

from __future__ import annotations

import math

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_mlx_native.sampling.filters import Repeats
from core_mlx_native.to_python import float_rows, floats

SIZE = 30
prompts = st.lists(st.integers(0, SIZE - 1), max_size=6)


def test_repeat_penalty_divides_positive_and_multiplies_negative_logits_once() -> None:
    logits = mx.array([[2.0, -2.0, 3.0]] * 3)
    repeats = Repeats.of([[0, 1, 1], [2], [0]], [2.0, 4.0, 1.0], 3)
    assert float_rows(repeats.penalise(logits)) == [
        [1.0, -4.0, 3.0],
        [2.0, -2.0, 0.75],
        [2.0, -2.0, 3.0],
    ]
    assert floats(logits[0]) == [2.0, -2.0, 3.0]  # the caller's logits are left alone


@given(st.data())
def test_repeats_follow_rows_that_come_and_go(data: st.DataObject) -> None:
    penalty = st.sampled_from([1.0, 1.0, 2.0, 4.0])
    seen: list[tuple[set[int], float]] = []  # the reference: what each row has seen
    repeats = Repeats.of([], [], SIZE)
    for _ in range(data.draw(st.integers(1, 5))):
        new = data.draw(st.lists(st.tuples(prompts, penalty), max_size=3))
        repeats = repeats.joined(Repeats.of([p for p, _ in new], [f for _, f in new], SIZE))
        seen += [(set(prompt), factor) for prompt, factor in new]
        tokens = [data.draw(st.integers(0, SIZE - 1)) for _ in seen]
        repeats = repeats.after(mx.array(tokens, mx.uint32))
        seen = [(had | {t}, factor) for (had, factor), t in zip(seen, tokens, strict=True)]
        stay = data.draw(st.permutations(range(len(seen))))[: data.draw(st.integers(0, len(seen)))]
        repeats, seen = repeats.take(stay), [seen[row] for row in stay]
        expected = [[6 / f if t in had else 6.0 for t in range(SIZE)] for had, f in seen]
        assert float_rows(repeats.penalise(mx.full((len(seen), SIZE), 6.0))) == expected


def test_marking_a_token_leaves_what_came_before_alone() -> None:
    before = Repeats.of([[1]], [2.0], 3)
    after = before.after(mx.array([0]))
    logits = mx.full((1, 3), 2.0)
    assert float_rows(before.penalise(logits)) == [[2.0, 1.0, 2.0]]
    assert float_rows(after.penalise(logits)) == [[1.0, 1.0, 2.0]]


@pytest.mark.parametrize("penalty", [5e-324, 1e-300, 1e300, 1.7e308])
def test_extreme_penalties_make_no_nan(penalty: float) -> None:
    logits = mx.array([[0.0, 1.0, -1.0, -math.inf, 30.0]])
    found = floats(Repeats.of([range(5)], [penalty], 5).penalise(logits)[0])
    assert [value > 0 for value in found] == [False, True, False, False, True]
    assert found[0] == 0.0
    assert found[3] == -math.inf
    assert found[1] < 1.0 if penalty > 1 else found[1] > 1.0


def test_without_a_penalty_no_table_is_kept() -> None:
    plain = Repeats.of([[1]], [1.0], 5)
    strong = Repeats.of([[1]], [2.0], 5)
    assert plain.after(mx.array([2])).divisors is None
    assert plain.joined(plain).divisors is None
    assert plain.joined(strong).divisors is not None
    assert plain.joined(strong).take([0]).divisors is None
    logits = mx.zeros((1, 5))
    assert plain.penalise(logits) is logits
