"""Several words (verbalizers) for one answer: their probabilities summed, in log space.

An answer's probability is the probability that any of its words follows. If one word is a prefix of
another in tokens (perhaps ``tech`` and ``technology``), the shorter one's probability includes the
longer one, which adds nothing, as in a label mass. The tokeniser is run only if the letters do not
rule this out. Label sentences do not overlap: each word has a sentence of its own.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from core import validate
from core.errors import LabelError
from core.extensions import Tokenizing
from core.kit.labels import Path, label_paths, label_texts
from core.options import GenerateConfig
from core.protocols import TextModel
from core_tasks.calibration.logspace import log_sum

Words = Mapping[str, tuple[str, ...]]
"""The words of each answer."""
_MOST_LEVEL = 1e100


def flat(words: Words) -> tuple[str, ...]:
    """Return all words, answer after answer: the labels of a classify call."""
    return tuple(word for alternatives in words.values() for word in alternatives)


def may_overlap(words: Words) -> bool:
    """Return whether, by its letters, a word may be a prefix of another of the same answer."""
    # Sorted, a prefix comes before its extensions, with only other extensions in between.
    pairs = (
        pair
        for alternatives in words.values()
        for pair in pairwise(sorted(map(_letters, alternatives)))
    )
    return any(longer.startswith(word) for word, longer in pairs)


def tokenizing(model: TextModel) -> Tokenizing:
    """Return the model, for its tokens. Raises `LabelError` if it does not expose them."""
    if isinstance(model, Tokenizing):
        return model
    raise LabelError(
        "A word of this task is a prefix of another word of the same label, and this model does "
        "not expose its tokens, so their overlap is unknown. Keep only the shorter word."
    )


def extending(prompt: str, words: Words, prefix: str, model: Tokenizing) -> frozenset[str]:
    """Return the words that extend another of their answer, in tokens, after this prompt."""
    texts = label_texts(prompt, flat(words), prefix)
    continued = [model.encode(prompt + text) for text in texts]
    _, paths = label_paths(
        model.encode(prompt), continued, lambda: [model.encode(text) for text in texts]
    )
    path_of = dict(zip(flat(words), paths, strict=True))
    longer: set[str] = set()
    for alternatives in words.values():
        own = {path_of[word] for word in alternatives}
        longer.update(word for word in alternatives if _extends_one(path_of[word], own))
    return frozenset(longer)


def summed(scores: Mapping[str, float], words: Words, without: frozenset[str]) -> dict[str, float]:
    """Return the log-probability of each answer: the sum of its words, except ``without``."""
    return {
        answer: log_sum([scores[word] for word in alternatives if word not in without])
        for answer, alternatives in words.items()
    }


def _extends_one(path: Path, paths: Collection[Path]) -> bool:
    return any(path[:end] in paths for end in range(len(path)))


def _letters(word: str) -> str:
    """Return a word without case, marks and white space, which tokenisers may ignore."""
    plain = unicodedata.normalize("NFKD", word).casefold()
    return "".join(c for c in plain if not c.isspace() and not unicodedata.combining(c))


def all_words(
    words: Mapping[str, Sequence[str]], answers: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the words of every answer. Raises `LabelError` for a word of two answers."""
    for answer in words:
        if answer not in answers:
            known = ", ".join(map(repr, answers))
            raise LabelError(f"words has the unknown label {answer!r:.40}. The labels are {known}.")
    whole = {
        answer: validate.texts(f"words[{answer!r}]", words.get(answer, (answer,)))
        for answer in answers
    }
    if empty := [answer for answer, alternatives in whole.items() if not alternatives]:
        raise LabelError(f"words is empty for {empty[0]!r}. Add a word, or omit the label.")
    GenerateConfig(labels=flat(whole))  # no word twice, of one answer or of two
    return whole


def check_numbers(labels: Sequence[str]) -> None:
    """Raise `LabelError` unless the labels of mode "levels" are different numbers."""
    # Their variance, a square, must not overflow.
    try:
        levels = [
            validate.real("labels", float(label), -_MOST_LEVEL, _MOST_LEVEL) for label in labels
        ]
    except ValueError:
        raise LabelError(
            f"The levels {[*labels]!r:.80} are not all numbers. Use numbers within "
            f"{_MOST_LEVEL:g} of 0, such as '1', or mode='one'."
        ) from None
    if len({*levels}) < len(levels):
        raise LabelError(f"Two of the levels {[*labels]!r:.80} are equal. Remove one of them.")
