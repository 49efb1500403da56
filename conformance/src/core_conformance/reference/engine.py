"""Running rows: prompts are read in chunks, then every step draws one token for each row.

As many requests run concurrently as there are slots; the others wait for one.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from core.errors import EmptyPromptError, ModelBusyError, PromptTooLongError, RequestError
from core.kit.base import RequestClock
from core.kit.support import text_error
from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core.types import FinishReason, Token
from core_conformance.reference.language import Language, log_softmax
from core_conformance.reference.meter import LEDGER, TOKEN_BYTES, Meter
from core_conformance.reference.sampling import generator, sample
from core_conformance.reference.vocabulary import (
    EOS,
    SPECIAL_TEXTS,
    VOCAB_SIZE,
    Detokenizer,
    encode,
)

_POLL_SECONDS = 0.01  # how often one that waits looks whether it still wants its turn
PREFILL_CHUNK = 32
_ENDLESS = 2**31


class Slots:
    """Slots, each held for a thread; no thread waits for one that it has itself to give back."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = threading.Condition()
        self._holders: list[int] = []
        self._waiting: set[int] = set()

    @contextmanager
    def taken(self, check: Callable[[], None]) -> Iterator[None]:
        """Hold a slot. ``check`` is called while it waits, to raise when it is not wanted.

        Raises `ModelBusyError` when all slots are held for threads that cannot continue before it.
        """
        me = threading.get_ident()
        with self._free:
            self._acquire(me, check)
        try:
            yield
        finally:  # perhaps in another thread, where a stream was closed
            with self._free:
                self._holders.remove(me)  # those that wait look again, soon

    def refuse_waiting_for_oneself(self) -> None:
        """Raise `ModelBusyError` when every slot is held for this very thread."""
        with self._free:
            self._refuse(threading.get_ident())

    def _acquire(self, me: int, check: Callable[[], None]) -> None:
        self._waiting.add(me)
        try:
            while len(self._holders) >= self.count:
                self._refuse(me)
                check()
                self._free.wait(_POLL_SECONDS)
            self._holders.append(me)
        finally:
            self._waiting.discard(me)

    def _refuse(self, me: int) -> None:
        stuck = self._waiting | {me}
        if len(self._holders) >= self.count and stuck.issuperset(self._holders):
            raise ModelBusyError(
                f"All {self.count} slots of the model are held by open streams of the threads "
                "that wait for one. Finish or close a stream, or load with more parallel_slots."
            )


class Generation:
    """A row that runs; ``context`` holds the tokens read of its prompt, and those drawn since.

    ``reason`` is None while it runs; ``drawn`` counts its tokens.
    """

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        self.prompt, self.config = tuple(ids), config
        self.context: list[int] = []
        self.clock = RequestClock(config)
        self.reason: FinishReason | None = None
        self.drawn = 0
        self.limit = min(config.max_tokens, room)
        self.random = generator(config)
        self.stops = {EOS, *config.stop_tokens}
        self.assembler = TokenAssembler(Detokenizer(), config.stop, SPECIAL_TEXTS)

    def chunks(self) -> Iterable[Sequence[int]]:
        """Return the prompt in the pieces that are read at once."""
        for start in range(0, len(self.prompt), PREFILL_CHUNK):
            yield self.prompt[start : start + PREFILL_CHUNK]

    def take(self, logits: Sequence[float]) -> list[Token]:
        """Draw a token; returns the tokens whose text cannot change any more."""
        token = sample(logits, self.context, self.config, self.random)
        self.drawn += 1
        if token in self.stops:
            return self._end("stop")
        self.context.append(token)
        logprob = log_softmax(logits)[token] if self.config.return_logprobs else None
        tokens = self.assembler.add(token, logprob)
        if self.assembler.stopped:
            return tokens + self._end("stop")
        if self.drawn >= self.limit:
            return tokens + self._end("length")
        return tokens

    def _end(self, reason: FinishReason) -> list[Token]:
        self.reason = reason
        return self.assembler.finish()


class Engine:
    """The engine that runs all requests of a model; ``check_open`` raises once that is closed."""

    generation_class: type[Generation] = Generation

    def __init__(
        self, language: Language, slots: int, rotates: bool, check_open: Callable[[], None]
    ) -> None:
        self.language, self.slots, self.check_open = language, Slots(slots), check_open
        self._rotates = rotates

    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the ids of a prompt. Raises `RequestError` for one that cannot run."""
        if isinstance(prompt, GivenIds):
            ids = check_ids(prompt.ids)
        else:
            check_text(prompt)
            ids = encode(prompt)
        self.check_length(len(ids))
        return ids

    def check_length(self, length: int) -> None:
        """Raise `PromptTooLongError` for more tokens than the context holds."""
        limit = self.language.context_length
        if length > limit:
            raise PromptTooLongError(length, limit)

    def generation(self, prompt: str, config: GenerateConfig) -> Generation:
        """Make a row for a prompt. Raises like `prompt_ids`."""
        ids = self.prompt_ids(prompt)
        room = max(1, self.language.context_length - len(ids))
        return self.generation_class(ids, config, _ENDLESS if self._rotates else room)

    def forward(self, rows: Sequence[Sequence[int]]) -> list[array[float]]:
        """Return the logits after each row's tokens, all in one pass."""
        return [self.language.logits(row) for row in rows]

    @contextmanager
    def running(self, rows: Sequence[Generation]) -> Iterator[None]:
        """Take memory for the contexts of these rows, and give it back at the end of the block."""
        size = TOKEN_BYTES * sum(len(row.prompt) for row in rows)
        LEDGER.add(size)
        try:
            yield
        finally:
            LEDGER.add(-size)

    def prefill(self, row: Generation, meter: Meter) -> None:
        """Read a row's prompt. Raises when it is cancelled, timed out, or the model closed."""
        meter.prompt_tokens += len(row.prompt)
        with meter.prefilling():
            for chunk in row.chunks():
                self.check(row)
                row.context.extend(chunk)

    def step(self, rows: Sequence[Generation], meter: Meter) -> list[list[Token]]:
        """Draw one more token for each row; returns the tokens that each row gives out."""
        with meter.decoding():
            logits = self.forward([row.context for row in rows])
            tokens = [row.take(values) for row, values in zip(rows, logits, strict=True)]
        meter.generated_tokens += sum(map(len, tokens))
        return tokens

    def check(self, row: Generation) -> None:
        """Raise when the row has to stop."""
        self.check_open()
        row.clock.check()


class GivenIds(str):
    """A prompt that came as token ids: these are read, and not the text."""

    ids: Sequence[int]

    def __new__(cls, ids: Sequence[int]) -> Self:
        prompt = super().__new__(cls, " ".join(map(str, ids)))
        prompt.ids = ids
        return prompt


def check_ids(ids: Sequence[int], name: str = "prompt") -> list[int]:
    """Return the ids of a prompt.

    Raises `RequestError` for an empty sequence, and for an id beyond the vocabulary.
    """
    if not ids:
        raise EmptyPromptError(f"The {name} has no token. Give it at least one.")
    if max(ids) >= VOCAB_SIZE:
        raise RequestError(f"The {name} has the token id {max(ids)}, of {VOCAB_SIZE} that exist.")
    return list(ids)


def check_text(text: str, name: str = "prompt") -> None:
    """Raise `RequestError` for text that cannot be tokenised."""
    if error := text_error(text, name):
        raise error
