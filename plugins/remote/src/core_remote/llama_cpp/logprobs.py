"""Exact log-probabilities of given tokens after a prompt, over the entire vocabulary.

The server reports the log-probability of each token that it draws, even a forced one. So a grammar
forces it to draw the requested tokens, one after the other, in one request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.errors import RequestError
from core_remote import failures
from core_remote.llama_cpp.events import LEAST, Likely
from core_remote.llama_cpp.requests import forced
from core_remote.llama_cpp.server import LlamaServer
from core_remote.llama_cpp.vocabulary import ALL, ServerVocabulary

_AT_ONCE = 64  # tokens of one request: a grammar rule should not have thousands


@dataclass(frozen=True, slots=True)
class KnownLogprob:
    """A token's log-probability; ``best``: no other token was likelier."""

    logprob: float
    best: bool


class LogprobReader:
    """Reader of log-probabilities from one model."""

    def __init__(self, server: LlamaServer, vocabulary: ServerVocabulary) -> None:
        self._server, self._vocabulary = server, vocabulary

    async def along(self, prompt: Sequence[int], path: Sequence[int]) -> list[KnownLogprob]:
        """Return the log-probability of each token of the path, after all before it.

        Raises `core.RequestError` if one is less likely than the server can report.
        """
        known_tokens: list[KnownLogprob] = []
        for run in self._runs(path):
            before = [*prompt, *path[: len(known_tokens)]]
            known_tokens += await self._run(before, run)
        return known_tokens

    async def one(self, prompt: Sequence[int], token: int) -> KnownLogprob:
        """Return the log-probability of one token, from the server's list of all possible ones."""
        body = forced(prompt, [self._vocabulary.letter], probabilities=ALL)
        answer = await self._server.complete(body)
        if not answer.completion_probabilities:
            raise failures.nonsense(self._server.address, "no log-probabilities")
        listed = answer.completion_probabilities[0].top_logprobs
        match = next((candidate for candidate in listed if candidate.id == token), None)
        if match is None:
            raise failures.nonsense(self._server.address, f"not all tokens: {token} is missing")
        return known(match, listed)

    async def _run(self, prompt: Sequence[int], run: Sequence[int]) -> list[KnownLogprob]:
        if not self._is_plain(run[0]):
            return [await self.one(prompt, run[0])]
        answer = await self._server.complete(forced(prompt, run))
        readings = answer.completion_probabilities
        if [reading.id for reading in readings] != [*run]:
            drawn = [reading.id for reading in readings[:8]]
            message = f"log-probabilities of the tokens {drawn}, forced to draw {[*run[:8]]}"
            raise failures.nonsense(self._server.address, message)
        return [known(reading, reading.top_logprobs) for reading in readings]

    def _runs(self, path: Sequence[int]) -> Iterator[Sequence[int]]:
        """Yield the path in parts of one request each: plain tokens, or a single other one."""
        start = 0
        for end in range(1, len(path) + 1):
            whole = self._is_plain(path[start]) and end < len(path) and self._is_plain(path[end])
            if not whole or end - start == _AT_ONCE:
                yield path[start:end]
                start = end

    def _is_plain(self, token: int) -> bool:
        """Return whether a grammar can force a token: not special, nor part of a character."""
        piece = self._vocabulary.pieces[token]
        if not piece or b"\0" in piece:
            return False
        try:
            piece.decode()
        except UnicodeDecodeError:
            return False
        return True


def known(token: Likely, listed: Sequence[Likely]) -> KnownLogprob:
    """Return a token's log-probability; ``listed`` begins with the best token.

    Raises `core.RequestError` for one below `LEAST`, and for one that is not a number.
    """
    logprob = token.value()
    if logprob < LEAST:
        raise RequestError(
            f"The log-probability of token {token.id} is below {LEAST:g}, the lowest that the "
            "server reports exactly. Load the model itself (backend 'llama_cpp') to read it."
        )
    best = not listed or token.id == listed[0].id
    return KnownLogprob(logprob, best)
