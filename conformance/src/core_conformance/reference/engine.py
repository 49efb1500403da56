"""Running rows: prompts are read in chunks, then every step draws one token for each row."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from core.errors import EmptyPromptError, PromptTooLongError, RequestError
from core.options import GenerateConfig
from core.types import Token
from core_conformance.reference.generation import Generation
from core_conformance.reference.language import Language
from core_conformance.reference.ledger import LEDGER, TOKEN_BYTES
from core_conformance.reference.meter import Meter
from core_conformance.reference.slots import Slots
from core_conformance.reference.vocabulary import encode

_ENDLESS = 2**31


class Engine:
    """What all requests of one model go through. ``check_open`` raises once it is closed."""

    generation_class: type[Generation] = Generation

    def __init__(
        self, language: Language, slots: int, rotates: bool, check_open: Callable[[], None]
    ) -> None:
        self.language, self.slots, self.check_open = language, Slots(slots), check_open
        self._rotates = rotates

    def prompt_ids(self, prompt: str) -> list[int]:
        """The ids of a prompt. Raises `RequestError` for one that cannot run."""
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
        """A row for a prompt. Raises like `prompt_ids`."""
        ids = self.prompt_ids(prompt)
        room = max(1, self.language.context_length - len(ids))
        return self.generation_class(ids, config, _ENDLESS if self._rotates else room)

    def forward(self, rows: Sequence[Sequence[int]]) -> list[array[float]]:
        """The logits behind each row's tokens, all in one pass."""
        return [self.language.logits(row) for row in rows]

    @contextmanager
    def running(self, rows: Sequence[Generation]) -> Iterator[None]:
        """Memory for the contexts of these rows."""
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
        """One more token for each row; the tokens that each gives out."""
        with meter.decoding():
            logits = self.forward([row.context for row in rows])
            tokens = [row.take(values) for row, values in zip(rows, logits, strict=True)]
        meter.generated_tokens += sum(map(len, tokens))
        return tokens

    def check(self, row: Generation) -> None:
        """Raise when the row has to stop."""
        self.check_open()
        row.clock.check()


def check_text(text: str, name: str = "prompt") -> None:
    """Raise `RequestError` for text that cannot be tokenised."""
    if not text:
        raise EmptyPromptError(f"The {name} is empty. Give it at least one character.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"The {name} is not valid Unicode text: a lone surrogate stands at character "
            f"{error.start}. Decode its source as UTF-8."
        ) from None
