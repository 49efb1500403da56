"""Several words for one answer: their probabilities summed, in log space, and none twice.

An answer's probability is that of the text going on with any of its words. Where one word begins
another in tokens (``tech`` and ``technology``, perhaps), the longer one is part of the shorter
one's share already and adds nothing, as in a label mass. Which do depends on the tokeniser: it is
asked, where the letters leave it open.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping
from itertools import pairwise

from core.calibration.logspace import log_sum
from core.errors import LabelError, TaskError
from core.extensions import Tokenizing
from core.labels import Path, label_paths, label_texts
from core.protocols import TextModel

Words = Mapping[str, tuple[str, ...]]
"""The words of each answer."""


def flat(words: Words) -> tuple[str, ...]:
    """All words, those of one answer behind another's: the labels of a classify call."""
    return tuple(word for each in words.values() for word in each)


def may_overlap(words: Words) -> bool:
    """Whether a word of an answer may begin another of the same, by its letters."""
    # Sorted, a word that begins another stands before it, with only its extensions between.
    pairs = (pair for each in words.values() for pair in pairwise(sorted(map(_letters, each))))
    return any(longer.startswith(word) for word, longer in pairs)


def tokenizing(model: TextModel) -> Tokenizing:
    """The model, for its tokens. Raises `LabelError` where it does not show them."""
    if isinstance(model, Tokenizing):
        return model
    raise LabelError(
        "A word of this task begins another of the same label, and this model does not show its "
        "tokens, so that what both have in common cannot be told. Keep the shorter word."
    )


def extending(prompt: str, words: Words, prefix: str, model: Tokenizing) -> frozenset[str]:
    """The words that extend another of their answer, in tokens, behind this prompt."""
    texts = label_texts(prompt, flat(words), prefix)
    continued = [model.encode(prompt + text) for text in texts]
    _, paths = label_paths(
        model.encode(prompt), continued, lambda: [model.encode(text) for text in texts]
    )
    path_of = dict(zip(flat(words), paths, strict=True))
    longer: set[str] = set()
    for each in words.values():
        own = {path_of[word] for word in each}
        longer.update(word for word in each if _extends_one(path_of[word], own))
    return frozenset(longer)


def summed(
    logprobs: Mapping[str, float] | None, words: Words, without: frozenset[str]
) -> dict[str, float]:
    """The log-probability of each answer, of its words' less those that add nothing."""
    if logprobs is None:
        raise TaskError(
            "The backend gave no log-probabilities of labels, which a task is built on. Use one "
            "that does: infer-cli backends lists them."
        )
    return {
        answer: log_sum([logprobs[word] for word in each if word not in without])
        for answer, each in words.items()
    }


def _extends_one(path: Path, paths: Collection[Path]) -> bool:
    return any(path[:end] in paths for end in range(len(path)))


def _letters(word: str) -> str:
    """What a tokeniser may take a word for at most: without case, marks and white space."""
    plain = unicodedata.normalize("NFKD", word).casefold()
    return "".join(c for c in plain if not c.isspace() and not unicodedata.combining(c))
