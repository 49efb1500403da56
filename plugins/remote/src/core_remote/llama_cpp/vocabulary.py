"""The vocabulary of a server's model, read once: the bytes of each token id.

No route lists it. But a server reports as many of the likeliest tokens as requested, each with its
bytes: a request for all of them lists the vocabulary, in which special tokens have no bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from core_remote import failures
from core_remote.llama_cpp.events import Likely
from core_remote.llama_cpp.requests import forced
from core_remote.llama_cpp.server import LlamaServer

ALL = 2**31 - 1
"""The number to request all tokens with."""

_TEXT = "a"
_BETWEEN = "\n"


@dataclass(frozen=True, slots=True)
class Lead:
    """The start of a tokenised text: ``bos`` ids, if any, and whether a space is prepended."""

    bos: tuple[int, ...]
    spaced: bool


@dataclass(frozen=True)
class ServerVocabulary:
    """A vocabulary. ``pieces[id]`` are the UTF-8 bytes of a token, empty for a special one.

    ``special`` maps texts of special tokens to ids; ``letter`` is a token of one character.
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
        """The expression that finds special tokens in a text, the longest first."""
        texts = sorted(filter(None, self.special), key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, texts))})") if texts else None

    @cached_property
    def names(self) -> Mapping[int, str]:
        """The texts of special tokens, by their ids."""
        return {id: text for text, id in self.special.items()}

    def known(self, ids: Sequence[int], server: LlamaServer) -> None:
        """Raise `core.BackendProcessError` for an id outside the vocabulary."""
        odd = next((id for id in ids if not 0 <= id < self.size), None)
        if odd is not None:
            fault = f"the token id {odd}, of a vocabulary of {self.size}"
            raise failures.nonsense(server.address, fault)

    def bytes_of(self, token_id: int, first: bool) -> bytes | None:
        """Return a token's bytes, as `core.kit.text_stream.TokenBytes`; None for a special token.

        With ``first``, they come without the space that the tokenizer prepended to the text.
        """
        data = self.pieces[token_id] if 0 <= token_id < self.size else b""
        if not data:
            return None
        return data.removeprefix(b" ") if first and self.lead.spaced else data


async def read(server: LlamaServer) -> ServerVocabulary:
    """Return the vocabulary. Raises `core.BackendProcessError` if the server omits tokens."""
    plain = await server.tokenize(_TEXT, add_special=False)
    begun = await server.tokenize(_TEXT, add_special=True)
    bos = tuple(begun[: begun.index(plain[0])]) if plain and plain[0] in begun else ()
    answer = await server.complete(forced(begun, plain[-1:], probabilities=ALL))
    readings = answer.completion_probabilities
    listed = readings[0].top_logprobs if readings else []

    pieces = _in_order(server, listed)
    if not plain or max([*begun, *plain]) >= len(pieces):
        fault = f"the ids {[*begun, *plain]} of {_TEXT!r}, of {len(pieces)} tokens"
        raise failures.nonsense(server.address, fault)
    hidden = [id for id, piece in enumerate(pieces) if not piece]
    special = dict(zip(await _texts(server, hidden), hidden, strict=True))
    lead = Lead(bos, pieces[plain[0]].startswith(b" "))
    return ServerVocabulary(pieces, special, lead, plain[-1])


def _in_order(server: LlamaServer, listed: Sequence[Likely]) -> list[bytes]:
    pieces = {token.id: bytes(token.bytes) for token in listed}
    if not pieces or sorted(pieces) != list(range(len(pieces))):
        raise failures.nonsense(server.address, f"{len(listed)} tokens, not all of the vocabulary")
    return [pieces[id] for id in range(len(pieces))]


async def _texts(server: LlamaServer, ids: Sequence[int]) -> list[str]:
    """Return the texts of special tokens, with one request: some vocabularies have many."""
    line_end = await server.tokenize(_BETWEEN, add_special=False)
    if ids and line_end:
        joined = await server.detokenize([id for token in ids for id in (token, *line_end[-1:])])
        texts = joined.split(_BETWEEN)
        if len(texts) == len(ids) + 1:
            return texts[:-1]
    return [await server.detokenize([token]) for token in ids]
