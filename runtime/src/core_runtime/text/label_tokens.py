"""The tokens of each label after each prompt, tokenised once per distinct prompt end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.errors import LabelError
from core.kit.labels import (
    LabelTrie,
    Path,
    build_trie,
    common_length,
    label_lead,
    label_paths,
    with_lead,
)
from core_runtime.text.tokenizer import ContinuingTokenizer

# A token that spans the border between prompt and label reaches back one token, in rare cases
# two; what stands further back cannot change how the label is tokenised.
_TAIL = 8
MOST_TOKENS = 256
"""Limit for one label: the trie of a longer one takes gigabytes, and cannot be cancelled."""
_TOGETHER = 2048  # texts that are tokenised at once: the library takes 2 KB for each


@dataclass(frozen=True, slots=True)
class LabelQuestion:
    """One row's labels: they begin after its first ``anchor`` tokens."""

    anchor: int
    trie: LabelTrie


Tail = tuple[int, ...] | str
"""A prompt's end: its text from the last cut, or its last tokens where nothing is cut."""

Lead = str
"""The text between a prompt and its labels, which more of the prompt may decide."""


@dataclass(frozen=True, slots=True)
class _Learnt:
    """Labels after the tail of a prompt: they begin ``back`` tokens before its end."""

    text: str
    back: int
    trie: LabelTrie


class LabelTokens:
    """Finds the token paths of one set of labels.

    Prompts whose labels have the same tokens share one trie object.
    """

    def __init__(self, tokenizer: ContinuingTokenizer, labels: Sequence[str], prefix: str) -> None:
        self._tokenizer, self._labels, self._prefix = tokenizer, labels, prefix
        self._lead = len(tokenizer.encode(""))  # BOS, or nothing
        self._texts: dict[Lead, list[str]] = {}  # of the labels: two leads, or one
        # None: such a tail does not stand alone.
        self._by_tail: dict[tuple[Lead, Tail], _Learnt | None] = {}
        self._tries: dict[tuple[Path, ...], LabelTrie] = {}

    def behind(
        self, prompts: Sequence[str], ids: Sequence[Sequence[int]]
    ) -> Iterator[LabelQuestion]:
        """Yield the labels' question for each prompt, of which ``ids`` are the tokens.

        Raises `LabelError` if two labels have the same tokens after one of them.
        """
        # Each prompt end that was not seen before is learnt, many at once.
        cut = self._tokenizer.last_cut if len(prompts) > 1 else _nowhere  # one shares with nobody
        tails = [
            (self._lead_of(prompt), self._tail(prompt, cut(prompt), tokens))
            for prompt, tokens in zip(prompts, ids, strict=True)
        ]
        new = [tail for tail in dict.fromkeys(tails) if tail not in self._by_tail]
        step = max(1, _TOGETHER // max(1, len(self._labels)))
        for start in range(0, len(new), step):
            self._learn(new[start : start + step])

        for prompt, tokens, tail in zip(prompts, ids, tails, strict=True):
            learnt = self._by_tail[tail]
            if learnt is not None and prompt.endswith(learnt.text):
                yield LabelQuestion(len(tokens) - learnt.back, learnt.trie)
            else:  # its end reads otherwise without what stands before it
                texts = self._texts[tail[0]]
                continued = self._tokenizer.encode_continued(prompt, texts)
                yield self._question(texts, tokens, continued)

    def _lead_of(self, prompt: str) -> Lead:
        lead = label_lead(prompt, self._prefix)
        if lead not in self._texts:
            self._texts[lead] = with_lead(lead, self._labels)
        return lead

    def _tail(self, prompt: str, cut: int, tokens: Sequence[int]) -> Tail:
        """Return the end of a prompt that decides about its labels; ``()`` if that is all of it."""
        if cut:
            return prompt[cut:]
        return tuple(tokens[-_TAIL:]) if len(tokens) > _TAIL + self._lead else ()

    def _learn(self, tails: Sequence[tuple[Lead, Tail]]) -> None:
        """Tokenise labels after the text of each tail, all at once: the library has threads."""
        self._by_tail |= dict.fromkeys(tails)

        # Only tokens whose text has the same tokens again can stand for their prompt.
        texts = [
            tail if isinstance(tail, str) else self._tokenizer.decode(tail) for _, tail in tails
        ]
        encoded = self._tokenizer.encode_batch(texts)
        alone = [
            (key, text, tokens)
            for key, text, tokens in zip(tails, texts, encoded, strict=True)
            if isinstance(key[1], str) or (key[1] and tuple(tokens[self._lead :]) == key[1])
        ]

        whole = [text + label for key, text, _ in alone for label in self._texts[key[0]]]
        continued = iter(self._tokenizer.encode_batch(whole))

        for key, text, ids in alone:
            row = self._texts[key[0]]
            both = [next(continued) for _ in row]
            # A label that shares no token with the tail may reach in front of it.
            if all(common_length(ids, tokens) > self._lead for tokens in both):
                question = self._question(row, ids, both)
                self._by_tail[key] = _Learnt(text, len(ids) - question.anchor, question.trie)

    def _question(
        self, texts: Sequence[str], ids: Sequence[int], continued: Sequence[Sequence[int]]
    ) -> LabelQuestion:
        """Return the question about labels with these texts, after a prompt with these tokens."""
        anchor, paths = label_paths(ids, continued, lambda: self._alone(texts))
        for label, path in zip(self._labels, paths, strict=True):
            if len(path) > MOST_TOKENS:
                raise LabelError(
                    f"The label {label!r:.60} has {len(path)} tokens, and the limit is "
                    f"{MOST_TOKENS}. Use a short label, or score() for long continuations."
                )
        key = tuple(paths)
        if key not in self._tries:
            self._tries[key] = build_trie(self._labels, paths)
        return LabelQuestion(anchor, self._tries[key])

    def _alone(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._tokenizer.encode(text)[self._lead :] for text in texts]


def _nowhere(_: str) -> int:
    return 0
