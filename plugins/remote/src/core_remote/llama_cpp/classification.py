"""``classify`` and ``score`` of one row, for work that runs on the connection's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from core.errors import EmptyPromptError, RequestError
from core.kit.labels import (
    LabelScores,
    LabelTrie,
    Path,
    build_trie,
    label_paths,
    label_texts,
    score_labels,
    with_scores,
)
from core.kit.support import text_error
from core.options import GenerateConfig
from core.types import ClassifyResult, Score, Token
from core_remote import failures
from core_remote.llama_cpp.events import LEAST, Likely
from core_remote.llama_cpp.logprobs import KnownLogprob, LogprobReader
from core_remote.llama_cpp.requests import completion, own_seed, seed_of
from core_remote.llama_cpp.server import LlamaServer
from core_remote.llama_cpp.tokenizer import Tokenizer

_LIKELY = 64  # tokens reported with the first draw: labels among them need no other request


class RowClassifier:
    """Reader of rows with one set of options."""

    def __init__(self, server: LlamaServer, tokenizer: Tokenizer, config: GenerateConfig) -> None:
        self._server, self._tokenizer, self._config = server, tokenizer, config
        self._logprob_reader = LogprobReader(server, tokenizer.vocabulary)
        self.prompt_tokens = self.cached_tokens = self.drawn_tokens = 0

    async def result(self, prompt: str) -> ClassifyResult:
        """Return the result of ``classify`` for one prompt. Raises `core.RequestError`."""
        ids = await _prompt(self._tokenizer, prompt)
        anchor, trie = await self._question(prompt, ids)
        drawn, listed = await self._drawn(ids)
        result = ClassifyResult(drawn)
        if trie is None:
            return result
        likeliest = listed if anchor == len(ids) else ()
        return with_scores(result, await self._scores(ids[:anchor], trie, likeliest))

    async def score(self, prompt: str, continuation: str) -> Score:
        """Return the score of a continuation. Raises `core.RequestError`."""
        if error := text_error(continuation, "continuation"):
            raise error
        head = await _encoded(self._tokenizer, prompt)
        anchor, [path] = await self._paths(prompt, head, [continuation])
        if anchor == 0 or not path:
            raise RequestError(
                f"The continuation {continuation!r:.60} adds no separate token after this prompt. "
                "Use a longer prompt, or another continuation."
            )
        return await self.score_tokens(head[:anchor], path)

    async def score_tokens(self, prompt: Sequence[int], continuation: Sequence[int]) -> Score:
        """Return the same for token ids."""
        if not prompt:
            raise EmptyPromptError("The prompt has no tokens.")
        if not continuation:
            raise RequestError("The continuation has no tokens.")
        self._tokenizer.fitting([*prompt, *continuation[:-1]])
        self._tokenizer.fitting(continuation[-1:])
        self.prompt_tokens += len(prompt) + len(continuation) - 1
        logprobs = await self._logprob_reader.along(prompt, continuation)
        values = tuple(known.logprob for known in logprobs)
        return Score(sum(values), values, all(known.best for known in logprobs))

    async def _question(self, prompt: str, ids: Sequence[int]) -> tuple[int, LabelTrie | None]:
        """Return where the labels begin, and their tokens. Raises `core.LabelError`."""
        labels = self._config.labels
        if not labels:
            return len(ids), None
        texts = label_texts(prompt, labels, self._config.label_prefix)
        anchor, paths = await self._paths(prompt, ids, texts)
        return anchor, build_trie(labels, paths)

    async def _paths(
        self, prompt: str, ids: Sequence[int], texts: Sequence[str]
    ) -> tuple[int, list[Path]]:
        continued = await self._tokenizer.encode_continued(prompt, texts)
        begun = all(tokens[:1] == [*ids[:1]] for tokens in continued)
        alone: list[list[int]] = []
        if not begun:
            alone = await asyncio.gather(*map(self._tokenizer.encode_alone, texts))
        return label_paths(ids, continued, lambda: alone)

    async def _drawn(self, ids: Sequence[int]) -> tuple[Token, Sequence[Likely]]:
        """Return the token that is drawn after a prompt, and the likeliest ones."""
        config = self._config
        wanted = _LIKELY if config.labels else int(config.return_logprobs)
        body = completion(
            ids,
            config,
            tokens=1,
            seed=seed_of(own_seed(config), 0),
            probabilities=wanted,
            context=self._tokenizer.limit + 1,
        )
        answer = await self._server.complete(body)
        if not answer.tokens:
            raise failures.nonsense(self._server.address, "no token")
        self._tokenizer.vocabulary.known(answer.tokens, self._server)
        self.prompt_tokens += len(ids)
        self.drawn_tokens += 1
        self.cached_tokens += answer.timings.cache_n if answer.timings else 0
        token, readings = answer.tokens[0], answer.completion_probabilities
        logprob = None
        if config.return_logprobs:
            if readings:
                logprob = readings[0].value()
            else:
                logprob = (await self._logprob_reader.one(ids, token)).logprob
        listed = readings[0].top_logprobs if readings else ()
        return Token(token, self._tokenizer.text(token), logprob), listed

    async def _scores(
        self, prompt: Sequence[int], trie: LabelTrie, listed: Sequence[Likely]
    ) -> LabelScores:
        reported = ((token.id, token.value()) for token in listed)
        known: dict[Path, float] = {(id,): logprob for id, logprob in reported if logprob >= LEAST}
        self._tokenizer.fitting([*prompt, *max(trie.prefixes, key=len)])
        for path in trie.paths:
            # One after the other: after the same prompt, in the slot that has just read it.
            if not _is_known(path, known):
                known |= _by_path(path, await self._logprob_reader.along(prompt, path))
        values = [
            [known[(*prefix, token)] for token in children]
            for prefix, children in zip(trie.prefixes, trie.children, strict=True)
        ]
        return score_labels(trie, values)


async def _encoded(tokenizer: Tokenizer, prompt: str) -> list[int]:
    if error := text_error(prompt):
        raise error
    ids = await tokenizer.encode(prompt)
    if not ids:
        raise EmptyPromptError("The prompt has no tokens.")
    return ids


async def _prompt(tokenizer: Tokenizer, prompt: str) -> list[int]:
    return tokenizer.fitting(await _encoded(tokenizer, prompt))


def _is_known(path: Path, known: dict[Path, float]) -> bool:
    return all(path[:end] in known for end in range(1, len(path) + 1))


def _by_path(path: Path, way: Sequence[KnownLogprob]) -> dict[Path, float]:
    return {path[:end]: known.logprob for end, known in enumerate(way, 1)}
