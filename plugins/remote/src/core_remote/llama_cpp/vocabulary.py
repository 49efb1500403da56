"""The tokens of a server's model, all of them, read once: what bytes each id stands for.

No route lists them. But a server tells as many of the likeliest tokens as it is asked for, each
with its bytes: asked for all, it lists its vocabulary, and a special token has no bytes in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from core_remote import failures
from core_remote.llama_cpp.events import Likely
from core_remote.llama_cpp.server import Server
from core_remote.llama_cpp.speech import forced

ALL = 2**31 - 1
"""As many tokens as there are."""

_TEXT = "a"
_BETWEEN = "\n"


@dataclass(frozen=True, slots=True)
class Lead:
    """What stands before a text: ``bos``, or nothing; and whether a space is put before it."""

    bos: tuple[int, ...]
    spaced: bool


@dataclass(frozen=True)
class Vocabulary:
    """``pieces[id]`` are the UTF-8 bytes of a token, none of a special one.

    ``special`` has those by their texts; ``letter`` is a token that is one whole character.
    """

    pieces: Sequence[bytes]
    special: Mapping[str, int]
    lead: Lead
    letter: int

    @property
    def size(self) -> int:
        """The number of tokens."""
        return len(self.pieces)

    @cached_property
    def marks(self) -> re.Pattern[str] | None:
        """Finds special tokens in a text, the longest first."""
        texts = sorted(filter(None, self.special), key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, texts))})") if texts else None

    @cached_property
    def names(self) -> Mapping[int, str]:
        """The texts of special tokens, by their ids."""
        return {id: text for text, id in self.special.items()}

    def known(self, ids: Sequence[int], server: Server) -> None:
        """Raise `core.BackendProcessError` for an id that is not one of these tokens."""
        odd = next((id for id in ids if not 0 <= id < self.size), None)
        if odd is not None:
            told = f"the token id {odd}, of a vocabulary of {self.size}"
            raise failures.nonsense(server.address, told)

    def bytes_of(self, token_id: int, first: bool) -> bytes | None:
        """A token's bytes, as `core.text_stream.TokenBytes`; None where there are none.

        With ``first``, they come without the space that the tokenizer put before the text.
        """
        data = self.pieces[token_id] if 0 <= token_id < self.size else b""
        if not data:
            return None
        return data.removeprefix(b" ") if first and self.lead.spaced else data


async def read(server: Server) -> Vocabulary:
    """Ask for it. Raises `core.BackendProcessError` where the server does not tell all tokens."""
    plain = await server.tokenize(_TEXT, add_special=False)
    begun = await server.tokenize(_TEXT, add_special=True)
    bos = tuple(begun[: begun.index(plain[0])]) if plain and plain[0] in begun else ()
    answer = await server.complete(forced(begun, plain[-1:], probabilities=ALL))
    readings = answer.completion_probabilities
    listed = readings[0].top_logprobs if readings else []

    pieces = _in_order(server, listed)
    if not plain or max(*begun, *plain) >= len(pieces):
        told = f"the ids {[*begun, *plain]} of {_TEXT!r}, of {len(pieces)} tokens"
        raise failures.nonsense(server.address, told)
    hidden = [id for id, piece in enumerate(pieces) if not piece]
    special = dict(zip(await _texts(server, hidden), hidden, strict=True))
    lead = Lead(bos, pieces[plain[0]].startswith(b" "))
    return Vocabulary(pieces, special, lead, plain[-1])


def _in_order(server: Server, listed: Sequence[Likely]) -> list[bytes]:
    found = {each.id: bytes(each.bytes) for each in listed}
    if not found or sorted(found) != list(range(len(found))):
        raise failures.nonsense(server.address, f"{len(listed)} tokens, asked for all that it has")
    return [found[id] for id in range(len(found))]


async def _texts(server: Server, ids: Sequence[int]) -> list[str]:
    """The texts of special tokens, which are many in some vocabularies: asked for at once."""
    line_end = await server.tokenize(_BETWEEN, add_special=False)
    if ids and line_end:
        joined = await server.detokenize([id for each in ids for id in (each, *line_end[-1:])])
        texts = joined.split(_BETWEEN)
        if len(texts) == len(ids) + 1:
            return texts[:-1]
    return [await server.detokenize([each]) for each in ids]
