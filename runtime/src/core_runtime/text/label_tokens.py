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

# A token across the border between prompt and label reaches back one token, in rare cases two;
# earlier text does not change the label's tokens.
_TAIL = 8
MOST_TOKENS = 256
"""Limit for one label: the trie of a longer one takes gigabytes, and cannot be cancelled."""
_TOGETHER = 2048  # texts per call of the library, which needs 2 KB for each


@dataclass(frozen=True, slots=True)
class LabelQuestion:
    """One row's labels: they begin after its first ``anchor`` tokens."""

    anchor: int
    trie: LabelTrie


Tail = tuple[int, ...] | str
"""A prompt's end: its text from the last cut, or its last tokens without a cut."""

Lead = str
"""The text between a prompt and its labels, which may depend on the entire prompt."""


@dataclass(frozen=True, slots=True)
class _KnownTail:
    """The labels' tokens after a prompt's tail; they begin ``back`` tokens before its end."""

    text: str
    back: int
    trie: LabelTrie


class LabelTokens:
    """The token paths of one set of labels.

    Prompts whose labels have the same tokens share one trie object.
    """

    def __init__(self, tokenizer: ContinuingTokenizer, labels: Sequence[str], prefix: str) -> None:
        self._tokenizer, self._labels, self._prefix = tokenizer, labels, prefix
        self._lead = len(tokenizer.encode(""))  # BOS, or nothing
        self._texts: dict[Lead, list[str]] = {}  # of the labels, by one or two leads
        # None: the tail's tokens depend on the text before it.
        self._by_tail: dict[tuple[Lead, Tail], _KnownTail | None] = {}
        self._tries: dict[tuple[Path, ...], LabelTrie] = {}

    def after(
        self, prompts: Sequence[str], ids: Sequence[Sequence[int]]
    ) -> Iterator[LabelQuestion]:
        """Yield the labels' question for each prompt; ``ids`` are the prompts' tokens.

        Raises `LabelError` if two labels have the same tokens after a prompt.
        """
        # New prompt tails are tokenised with the labels, many at once; one prompt shares nothing.
        cut = self._tokenizer.last_cut if len(prompts) > 1 else _nowhere
        tails = [
            (self._lead_of(prompt), self._tail(prompt, cut(prompt), tokens))
            for prompt, tokens in zip(prompts, ids, strict=True)
        ]
        new = [tail for tail in dict.fromkeys(tails) if tail not in self._by_tail]
        step = max(1, _TOGETHER // max(1, len(self._labels)))
        for start in range(0, len(new), step):
            self._learn(new[start : start + step])

        for prompt, tokens, tail in zip(prompts, ids, tails, strict=True):
            known = self._by_tail[tail]
            if known is not None and prompt.endswith(known.text):
                yield LabelQuestion(len(tokens) - known.back, known.trie)
            else:  # its end has other tokens without the text before it
                texts = self._texts[tail[0]]
                continued = self._tokenizer.encode_continued(prompt, texts)
                yield self._question(texts, tokens, continued)

    def _lead_of(self, prompt: str) -> Lead:
        lead = label_lead(prompt, self._prefix)
        if lead not in self._texts:
            self._texts[lead] = with_lead(lead, self._labels)
        return lead

    def _tail(self, prompt: str, cut: int, tokens: Sequence[int]) -> Tail:
        """Return the end of a prompt that determines its labels' tokens; ``()`` for all of it."""
        if cut:
            return prompt[cut:]
        return tuple(tokens[-_TAIL:]) if len(tokens) > _TAIL + self._lead else ()

    def _learn(self, tails: Sequence[tuple[Lead, Tail]]) -> None:
        """Tokenise the labels after each tail, in one call of the library, which uses threads."""
        self._by_tail |= dict.fromkeys(tails)

        # A tail can replace its prompt only if its text has the same tokens again.
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
            # A label that shares no token with the tail may reach beyond its start.
            if all(common_length(ids, tokens) > self._lead for tokens in both):
                question = self._question(row, ids, both)
                self._by_tail[key] = _KnownTail(text, len(ids) - question.anchor, question.trie)

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
