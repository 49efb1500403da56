"""The tokenizer of an encoder: whole texts, with the tokens before and after them, and pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Encoding

from core.errors import TokenizerError
from core.kit.chat import RenderedPrompt
from core_openvino.encoder.pipeline import Pipeline
from core_runtime.tokenizer.files import TokenizerFiles
from core_runtime.tokenizer.model_tokenizer import Tokenizer

_SAMPLE = "a"


class Encoded(NamedTuple):
    """A row of tokens, and the segment of each: which text of a pair it belongs to."""

    ids: Sequence[int]
    segments: Sequence[int] = ()


class _Frame(NamedTuple):
    """The special tokens around texts: before the first, between two, and at the end."""

    head: Sequence[int]
    middle: Sequence[int]
    tail: Sequence[int]


class EncoderTokenizer(Tokenizer):
    """A tokenizer that adds a prompt and special tokens, and cuts texts to ``limit`` if asked."""

    ends = True

    def __init__(self, files: TokenizerFiles, pipeline: Pipeline, where: str) -> None:
        super().__init__(files)
        self._prompt, self._lower, self._where = pipeline.prompt, pipeline.lower, where
        self.limit = 0
        single = self.library.encode(_SAMPLE)
        self._single, _ = self._frame(single)
        self._pair, self._segments = self._frame(self.library.encode(_SAMPLE, _SAMPLE))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, with the prompt and the special tokens around it.

        In a `core.RenderedPrompt` spelled special tokens are read as such, without the prompt.
        """
        if isinstance(text, RenderedPrompt):
            ids = self._chat.encode(text, self._between)
            return self._cut([*self._single.head, *ids, *self._single.tail])
        return self._plain([text])[0]

    def fewest_tokens(self, text: str) -> int:
        """Return the minimum number of a text's tokens; 0 for a text that may be cut."""
        return 0 if self.limit else super().fewest_tokens(text)

    def pair(self, first: Sequence[int], second: Sequence[int]) -> Encoded:
        """Join the ids of two texts, each of `encode`; only the first is cut."""
        begin, end, frame = len(self._single.head), len(self._single.tail), self._pair
        texts = [ids[begin : len(ids) - end] for ids in (first, second)]
        if self.limit:
            left = self.limit - sum(map(len, frame)) - len(texts[1])
            texts[0] = texts[0][: max(1, left)]  # a pair without its text would say nothing
        parts = frame.head, texts[0], frame.middle, texts[1], frame.tail
        segments = [
            segment for part, segment in zip(parts, self._segments, strict=True) for _ in part
        ]
        return Encoded([id for part in parts for id in part], segments)

    def _plain(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of plain texts."""
        return [self._cut(ids) for ids in self.whole(texts)]

    def whole(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of plain texts, uncut."""
        prepared = [self._prompt + text for text in texts]
        if self._lower:
            prepared = [text.lower() for text in prepared]
        return self._batch(prepared, add_special=True)

    def _cut(self, ids: list[int]) -> list[int]:
        if not self.limit or len(ids) <= self.limit:
            return ids
        end = len(ids) - len(self._single.tail)
        return [*ids[: self.limit - len(self._single.tail)], *ids[end:]]

    def _frame(self, encoding: Encoding) -> tuple[_Frame, Sequence[int]]:
        """Return the special tokens around the texts of an encoding, and each part's segment."""
        places = encoding.sequence_ids
        texts = [[at for at, owner in enumerate(places) if owner == text] for text in (0, 1)]
        first = texts[0]
        if not first:
            raise TokenizerError(f"{self._where}: the tokenizer knows no letter {_SAMPLE!r}.")
        last = texts[1] or first
        ids, types = encoding.ids, encoding.type_ids
        frame = _Frame(ids[: first[0]], ids[first[-1] + 1 : last[0]], ids[last[-1] + 1 :])
        middle = types[first[-1] + 1] if frame.middle else types[first[-1]]
        tail = types[-1]
        return frame, (types[0], types[first[0]], middle, types[last[0]], tail)
