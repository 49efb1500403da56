"""Cross-validation folds, in which no row is evaluated by a fit to its own text.

A text that occurs twice could be in the training part and in the test part, so rows with equal
texts stay together, here and wherever rows are held out.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

FOLDS = 5


def text_key(text: str) -> str:
    """Return the key of a text, which is the same for texts that differ only in white space."""
    return " ".join(text.split())


def folds_of(texts: Sequence[str], gold: Sequence[int] | None, count: int = FOLDS) -> list[int]:
    """Return the fold of each row, independent of row order; equal texts are in one fold.

    Texts are distributed over ``count`` folds label by label; a text with several labels counts for
    the label of most of its rows.
    """
    labels = main_labels(texts, gold)
    dealt: dict[int, int] = {}
    fold_of: dict[str, int] = {}
    for key in sorted(labels, key=lambda key: (_digest(key), key)):
        # Each label begins one fold later than the previous one, so that folds have equal sizes.
        label = labels[key]
        fold_of[key] = (dealt.get(label, 0) + label) % count
        dealt[label] = dealt.get(label, 0) + 1
    return [fold_of[text_key(text)] for text in texts]


def main_labels(texts: Sequence[str], gold: Sequence[int] | None) -> dict[str, int]:
    """Return the most frequent label of each text, by `text_key`; 0 without gold labels."""
    counts: dict[str, Counter[int]] = {}
    for row, text in enumerate(texts):
        counts.setdefault(text_key(text), Counter())[0 if gold is None else gold[row]] += 1
    return {
        key: min(votes, key=lambda label: (-votes[label], label)) for key, votes in counts.items()
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
