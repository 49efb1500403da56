"""The white space next to special tokens with ``lstrip`` or ``rstrip``, which they absorb.

Phi-3's ``<|assistant|>`` absorbs the line break after it, RoBERTa's ``<mask>`` the space before it.
"""

from __future__ import annotations

import re

from tokenizers import Tokenizer as Library

from core.kit.chat import RenderedPrompt

# Unicode's White_Space, as used by the library; Python's definition has four more.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
_SPACE += "".join(map(chr, range(0x2000, 0x200B)))


class AbsorbedSpace:
    """The special tokens of a tokenizer that absorb white space; usually none."""

    def __init__(self, library: Library) -> None:
        special = [token for token in library.get_added_tokens_decoder().values() if token.special]
        self._left = {token.content for token in special if token.lstrip}
        self._right = {token.content for token in special if token.rstrip}
        texts = sorted((token.content for token in special), key=len, reverse=True)
        self._tokens = re.compile(f"({'|'.join(map(re.escape, texts))})")

    def __bool__(self) -> bool:
        return bool(self._left or self._right)

    def without(self, prompt: RenderedPrompt) -> RenderedPrompt:
        """Return a prompt without the white space that its special tokens absorb."""
        spaces = _SPACE + prompt.marker
        parts = self._tokens.split(prompt.marked)  # texts, with a token after each but the last
        for place in range(1, len(parts), 2):
            if parts[place] in self._left:
                parts[place - 1] = parts[place - 1].rstrip(spaces)
            if parts[place] in self._right:
                parts[place + 1] = parts[place + 1].lstrip(spaces)
        return RenderedPrompt("".join(parts), prompt.marker)
