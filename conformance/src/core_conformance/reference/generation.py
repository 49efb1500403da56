"""One prompt that is continued: its options, its state, and when it ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from core.clock import RequestClock
from core.options import GenerateConfig
from core.text_stream import TokenAssembler
from core.types import FinishReason, Token
from core_conformance.reference.language import log_softmax
from core_conformance.reference.sampling import sample
from core_conformance.reference.vocabulary import EOS, Detokenizer

PREFILL_CHUNK = 32


class Generation:
    """A row. ``context`` are the tokens that the model has read of it, and those drawn since.

    ``reason`` is None while it runs; ``drawn`` counts its tokens, ``emitted`` those given out.
    """

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        self.prompt, self.config = tuple(ids), config
        self.context: list[int] = []
        self.clock = RequestClock(config)
        self.reason: FinishReason | None = None
        self.emitted = 0
        self.drawn = 0
        self.limit = min(config.max_tokens, room)
        self.random = Random(config.seed)
        self.stops = {EOS, *config.stop_tokens}
        self.assembler = TokenAssembler(Detokenizer(), config.stop)

    def chunks(self) -> Iterable[Sequence[int]]:
        """The prompt in the pieces that are read at once."""
        for start in range(0, len(self.prompt), PREFILL_CHUNK):
            yield self.prompt[start : start + PREFILL_CHUNK]

    def take(self, logits: Sequence[float]) -> list[Token]:
        """Draw a token. Returns those whose text is settled by it."""
        token = sample(logits, self.context, self.config, self.random)
        self.drawn += 1
        if token in self.stops:
            return self._end("stop")
        self.context.append(token)
        logprob = log_softmax(logits)[token] if self.config.return_logprobs else None
        tokens = self.assembler.add(token, logprob)
        self.emitted += len(tokens)
        if self.assembler.stopped:
            return tokens + self._end("stop")
        if self.drawn >= self.limit:
            return tokens + self._end("length")
        return tokens

    def _end(self, reason: FinishReason) -> list[Token]:
        self.reason = reason
        tokens = self.assembler.finish()
        self.emitted += len(tokens)
        return tokens
