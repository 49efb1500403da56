"""The tokens of each label behind each prompt, tokenised once per distinct prompt end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.labels import LabelTrie, Path, build_trie, label_paths, label_texts
from core.serving.served import ContinuingTokenizer

# A token that spans the border between prompt and label reaches back one token, in rare cases
# two; what stands further back cannot change how the label is tokenised.
_TAIL = 8


@dataclass(frozen=True, slots=True)
class LabelQuestion:
    """One row's labels: they begin behind its first ``anchor`` tokens."""

    anchor: int
    trie: LabelTrie


class LabelTokens:
    """Finds the token paths of one set of labels.

    ``behind(prompt, ids)`` gives the number of the prompt's tokens that stand before the labels,
    and the labels' trie. Prompts whose labels have the same tokens share one trie object.
    """

    def __init__(self, tokenizer: ContinuingTokenizer, labels: Sequence[str], prefix: str) -> None:
        self._tokenizer, self._labels, self._prefix = tokenizer, labels, prefix
        self._lead = len(tokenizer.encode(""))  # BOS, or nothing
        self._by_tail: dict[tuple[int, ...], tuple[str, int, LabelTrie] | None] = {}
        self._tries: dict[tuple[Path, ...], LabelTrie] = {}

    def behind(self, prompt: str, ids: Sequence[int]) -> LabelQuestion:
        """Raises `LabelError` when two labels cannot be told apart behind this prompt."""
        tail = tuple(ids[-_TAIL:]) if len(ids) > _TAIL + self._lead else ()
        if tail:
            if tail not in self._by_tail:
                self._by_tail[tail] = self._behind_tail(tail)
            found = self._by_tail[tail]
            if found is not None and prompt.endswith(found[0]):
                return LabelQuestion(len(ids) - found[1], found[2])
        return LabelQuestion(*self._behind_text(prompt, ids))

    def _behind_tail(self, tail: tuple[int, ...]) -> tuple[str, int, LabelTrie] | None:
        """The same for the prompt's last tokens alone; None where they do not stand alone."""
        text = self._tokenizer.decode(tail)
        ids = self._tokenizer.encode(text)
        if tuple(ids[self._lead :]) != tail:
            return None
        anchor, trie = self._behind_text(text, ids)
        if anchor <= self._lead:
            return None
        return text, len(ids) - anchor, trie

    def _behind_text(self, prompt: str, ids: Sequence[int]) -> tuple[int, LabelTrie]:
        texts = label_texts(prompt, self._labels, self._prefix)
        continued = self._tokenizer.encode_continued(prompt, texts)
        anchor, paths = label_paths(ids, continued, lambda: self._alone(texts))
        key = tuple(paths)
        if key not in self._tries:
            self._tries[key] = build_trie(self._labels, paths)
        return anchor, self._tries[key]

    def _alone(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._tokenizer.encode(text)[self._lead :] for text in texts]
