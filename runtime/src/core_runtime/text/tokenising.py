"""Tokenising that can be stopped: texts in blocks, and a large text on a separate thread.

The library cannot be interrupted within a text; it reads a few megabytes per second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from core.kit.base import Check
from core_runtime.text.tokenizer import ContinuingTokenizer
from core_runtime.threads import outlasting

_BLOCK = 2**17  # characters per block: about a tenth of a second

Encode = Callable[[slice], list[list[int]]]  # returns the ids of a slice of the texts


class Tokenising:
    """A model's tokenizer for one request, whose ``check`` raises when it is time to stop.

    It is polled between two blocks of texts, and while a text larger than a block is read.
    """

    def __init__(self, tokenizer: ContinuingTokenizer, check: Check) -> None:
        self._tokenizer, self._check = tokenizer, check

    def encode(self, text: str) -> list[int]:
        """Return the ids of a prompt, with BOS if the model has one."""
        if len(text) > _BLOCK:
            return outlasting(partial(self._tokenizer.encode, text), self._check)
        return self._tokenizer.encode(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts, like `encode`."""
        return self._in_blocks(
            list(map(len, texts)), lambda some: self._tokenizer.encode_batch(texts[some])
        )

    def encode_continued(self, prompt: str, continuations: Sequence[str]) -> list[list[int]]:
        """Return the ids of the prompt with each continuation appended."""
        return self._in_blocks(
            [len(prompt) + len(continuation) for continuation in continuations],
            lambda some: self._tokenizer.encode_continued(prompt, continuations[some]),
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids without special tokens."""
        return self._tokenizer.decode(ids)

    def last_cut(self, text: str) -> int:
        """Return a place near a text's end after which its tokens are the rest's own; 0: none."""
        return self._tokenizer.last_cut(text)

    def _in_blocks(self, sizes: Sequence[int], encode: Encode) -> list[list[int]]:
        ids: list[list[int]] = []
        for block, size in _blocks(sizes):
            if ids:
                self._check()
            job = partial(encode, block)
            ids += outlasting(job, self._check) if size > _BLOCK else job()
        return ids


def _blocks(sizes: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """Divide texts, in order, into blocks of one text, or of at most ``_BLOCK`` characters.

    Yields each block's slice of the texts, and its characters.
    """
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and total + size > _BLOCK:
            yield slice(start, index), total
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield slice(start, len(sizes)), total
