"""Words of one answer: which of them extend another, found without looking at all pairs."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tasks import words as module
from core_tasks.words import extending, may_overlap

SPELLED = st.lists(st.text("abé", min_size=1, max_size=4), min_size=1, max_size=8, unique=True)


class Letters:
    """A tokenizer whose tokens are letters."""

    def encode(self, text: str) -> list[int]:
        return [*map(ord, text)]


@given(SPELLED)
def test_it_is_what_all_pairs_say(spelled: list[str]) -> None:
    words = {"x": tuple(spelled), "y": ("z",)}
    plain = [word.replace("é", "e") for word in spelled]
    assert may_overlap(words) == any(b.startswith(a) for a, b in permutations(plain, 2))
    longer = {b for a, b in permutations(spelled, 2) if b.startswith(a) and a != b}
    assert extending("p", words, " ", Letters()) == longer  # type: ignore[arg-type]


def test_many_words_are_compared_with_their_neighbours_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file of 200 KB may hold twenty thousand words: their pairs would take minutes."""
    compared = []

    class Counted(str):
        def startswith(self, *arguments: object) -> bool:
            compared.append(self)
            return str.startswith(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_letters", Counted)
    assert not may_overlap({"x": tuple(f"word {number:04}" for number in range(1000))})
    assert 0 < len(compared) < 1000
