"""The tokens of each label behind each prompt, tokenised once per distinct prompt end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.labels import LabelTrie, Path, build_trie, label_paths, label_texts
from core.serving.served import ContinuingTokenizer

# A token that spans the border between prompt and label reaches back one token, in rare cases
# two; what stands further back cannot change how the label is tokenised.
_TAIL = 8
_TOGETHER = 2048  # texts that are tokenised at once: the library takes 2 KB for each


@dataclass(frozen=True, slots=True)
class LabelQuestion:
    """One row's labels: they begin behind its first ``anchor`` tokens."""

    anchor: int
    trie: LabelTrie


Tail = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Learnt:
    """Labels behind the tail of a prompt: they begin ``back`` tokens before its end."""

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
        self._by_tail: dict[Tail, _Learnt | None] = {}  # None: such a tail does not stand alone
        self._tries: dict[tuple[Path, ...], LabelTrie] = {}

    def behind(
        self, prompts: Sequence[str], ids: Sequence[Sequence[int]]
    ) -> Iterator[LabelQuestion]:
        """The labels' question for each prompt, of which ``ids`` are the tokens.

        Raises `LabelError` when two labels cannot be told apart behind one of them.
        """
        tails = [self._tail(tokens) for tokens in ids]
        new = [tail for tail in dict.fromkeys(tails) if tail not in self._by_tail]
        step = max(1, _TOGETHER // max(1, len(self._labels)))
        for start in range(0, len(new), step):
            self._learn(new[start : start + step])
        for prompt, tokens, tail in zip(prompts, ids, tails, strict=True):
            learnt = self._by_tail[tail]
            if learnt is not None and prompt.endswith(learnt.text):
                yield LabelQuestion(len(tokens) - learnt.back, learnt.trie)
            else:
                texts = label_texts(prompt, self._labels, self._prefix)
                continued = self._tokenizer.encode_continued(prompt, texts)
                yield self._question(texts, tokens, continued)

    def _tail(self, tokens: Sequence[int]) -> Tail:
        """A prompt's last tokens, if there are more before them."""
        return tuple(tokens[-_TAIL:]) if len(tokens) > _TAIL + self._lead else ()

    def _learn(self, tails: Sequence[Tail]) -> None:
        """Tokenise labels behind the text of each tail, all at once: the library has threads."""
        self._by_tail |= dict.fromkeys(tails)
        texts = [self._tokenizer.decode(tail) for tail in tails]
        encoded = self._tokenizer.encode_batch(texts)
        found = zip(tails, texts, encoded, strict=True)
        alone = [each for each in found if each[0] and tuple(each[2][self._lead :]) == each[0]]
        labels = [label_texts(text, self._labels, self._prefix) for _, text, _ in alone]
        whole = [
            text + label for (_, text, _), row in zip(alone, labels, strict=True) for label in row
        ]
        continued = iter(self._tokenizer.encode_batch(whole))
        for (tail, text, ids), row in zip(alone, labels, strict=True):
            question = self._question(row, ids, [next(continued) for _ in row])
            if question.anchor > self._lead:
                self._by_tail[tail] = _Learnt(text, len(ids) - question.anchor, question.trie)

    def _question(
        self, texts: Sequence[str], ids: Sequence[int], continued: Sequence[Sequence[int]]
    ) -> LabelQuestion:
        """Of labels with these texts behind a prompt with these tokens."""
        anchor, paths = label_paths(ids, continued, lambda: self._alone(texts))
        key = tuple(paths)
        if key not in self._tries:
            self._tries[key] = build_trie(self._labels, paths)
        return LabelQuestion(anchor, self._tries[key])

    def _alone(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._tokenizer.encode(text)[self._lead :] for text in texts]
