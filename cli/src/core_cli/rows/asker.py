"""Runs the model on blocks of rows: duplicates once, errors per row."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from core.errors import CoreError
from core.kit.support import block_sizes
from core.options import GenerateConfig
from core.protocols import TextModel
from core.types import BatchResult, GenerateMetrics, Token
from core_cli import output
from core_cli.reading.row import Row
from core_cli.rows.prompts import PromptMaker
from core_cli.values import Answer, Answered, Ask, Cost, Kind

if TYPE_CHECKING:
    from core_cli.loading import Loaded


class Known:
    """A cache of answers by prompt, limited to some megabytes, first in, first out.

    Its content depends on the rows alone, so that a resumed job has the same cache.
    """

    _ENTRY = 2000  # bytes of an answer with a few labels, and of the entry itself

    def __init__(self, largest: int = 64 * 2**20) -> None:
        # A dict would skip all deleted keys to find the first one.
        self._answers: OrderedDict[Hashable, Answer] = OrderedDict()
        self._bytes, self._largest = 0, largest

    def get(self, key: Hashable) -> Answer | None:
        """Return the cached answer to an equal prompt."""
        return self._answers.get(key)

    def put(self, prompts: Mapping[Hashable, Answer]) -> None:
        """Cache answers that are not cached yet."""
        self._answers.update(prompts)
        self._bytes += sum(map(_size, prompts))
        while self._bytes > self._largest:
            oldest, _ = self._answers.popitem(last=False)
            self._bytes -= _size(oldest)


class RowAsker(Protocol):
    """A runner of blocks of rows, with the kind of their answers."""

    kind: Kind

    @property
    def backend(self) -> str:
        """The name of the backend."""
        ...

    def answered(
        self, block: Sequence[Row], cancel: threading.Event
    ) -> tuple[list[Answered], Cost]:
        """Return the rows of a block with their answers, in order, and their cost."""
        ...

    def recall(self, block: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Restore the cache that an earlier run of the job had after this block."""
        ...

    def forget(self) -> None:
        """Limit the cache of answers to a block."""
        ...

    def prompt(self, row: Row) -> str | Exception:
        """Return the prompt of a row, or the row's error."""
        ...

    @property
    def variables(self) -> Mapping[str, object]:
        """The variables that the chat template was given for prompts until now."""
        ...


class Asker:
    """An asker of blocks of rows. ``known`` is None if duplicates run again."""

    def __init__(
        self,
        model: TextModel,
        ask: Ask,
        kind: Kind,
        maker: PromptMaker,
        config: GenerateConfig,
        known: Known | None = None,
    ) -> None:
        self.kind = kind
        self._model, self._ask, self._maker = model, ask, maker
        self._config, self._known = config, known

    def answered(
        self, block: Sequence[Row], cancel: threading.Event
    ) -> tuple[list[Answered], Cost]:
        """Return the rows of a block with their answers, in order, and their cost."""
        prompts = [self.prompt(row) for row in block]
        if self._known is None:
            answers = iter(self._asked([p for p in prompts if isinstance(p, str)], cancel))
            answered_rows = [
                Answered(row, *next(answers)) if isinstance(prompt, str) else self._bad(row, prompt)
                for row, prompt in zip(block, prompts, strict=True)
            ]
            prompt_count = sum(isinstance(prompt, str) for prompt in prompts)
            return answered_rows, self._cost(prompt_count, 0)

        # Each unknown prompt runs once.
        unknown = {
            _key(prompt): prompt
            for prompt in prompts
            if isinstance(prompt, str) and self._known.get(_key(prompt)) is None
        }
        new = dict(zip(unknown, self._asked(list(unknown.values()), cancel), strict=True))
        answered_rows = [
            self._found(row, prompt, new) for row, prompt in zip(block, prompts, strict=True)
        ]
        self._known.put({key: answer for key, (answer, error) in new.items() if error is None})
        equal = sum(isinstance(prompt, str) for prompt in prompts) - len(unknown)
        return answered_rows, self._cost(len(unknown), equal)

    def recall(self, block: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Restore the cache that an earlier run of the job had after this block."""
        if self._known is None:
            return
        new: dict[Hashable, Answer] = {}
        for row, answer in zip(block, answers, strict=True):
            prompt = self.prompt(row)
            if isinstance(prompt, Exception) or answer["error"] is not None:
                continue
            if self._known.get(_key(prompt)) is None:
                new.setdefault(_key(prompt), answer)
        self._known.put(new)

    @property
    def backend(self) -> str:
        """The name of the backend."""
        return self._maker.backend

    @property
    def variables(self) -> Mapping[str, object]:
        """The variables that the chat template was given for prompts until now."""
        return self._maker.variables

    def forget(self) -> None:
        """Limit the cache of answers to a block."""
        if self._known is not None:
            self._known = Known(largest=0)

    def prompt(self, row: Row) -> str | Exception:
        """Return the prompt of a row, or the row's error."""
        if row.error is not None:
            return row.error
        try:
            return self._maker.prompt(row)
        except CoreError as error:  # the chat template rejects this row
            return error

    def _asked(
        self, prompts: list[str], cancel: threading.Event
    ) -> list[tuple[Answer, Exception | None]]:
        if not prompts:
            return []
        results = self._ask(prompts, replace(self._config, cancel=cancel))
        return [(self.kind.answer(result), result.error) for result in results]

    def _found(
        self,
        row: Row,
        prompt: str | Exception,
        new: Mapping[Hashable, tuple[Answer, Exception | None]],
    ) -> Answered:
        if not isinstance(prompt, str):
            return self._bad(row, prompt)
        assert self._known is not None
        known = self._known.get(_key(prompt))
        return Answered(row, known) if known is not None else Answered(row, *new[_key(prompt)])

    def _bad(self, row: Row, error: Exception) -> Answered:
        return Answered(row, self.kind.failed(error), error)

    def _cost(self, prompt_count: int, equal: int) -> Cost:
        spent = self._model.metrics if prompt_count else GenerateMetrics()
        return Cost(
            *(prompt_count, equal, spent.prompt_tokens, spent.cached_prompt_tokens),
            spent.generated_tokens,
        )


def _key(prompt: str) -> Hashable:
    """Return the key of a prompt for deduplication.

    A rendered prompt never equals a plain one.
    """
    return prompt if type(prompt) is str else (prompt,)


def _size(key: Hashable) -> int:
    return len(key if isinstance(key, str) else key[0]) + Known._ENTRY  # type: ignore[index]


FIRST_BLOCK, LARGEST_BLOCK = 32, 256
"""Blocks start small for early results; an interrupted block is computed again completely."""
LARGEST_TEXT = 16 * 2**20
"""Characters of texts, or bytes of records, after which a block ends early."""


def blocks(
    rows: Iterable[Row], more_waits: Callable[[], bool] = lambda: True, size: int | None = None
) -> Iterator[list[Row]]:
    """Yield the rows by 32, 64, 128, and 256 from then on, or always by ``size``.

    A block has fewer if no more rows are available.
    """
    source = iter(rows)
    for count in block_sizes(size or FIRST_BLOCK, size or LARGEST_BLOCK):
        block = list(_bounded(islice(source, count), more_waits))
        if not block:
            return
        yield block


def _bounded(rows: Iterable[Row], more_waits: Callable[[], bool]) -> Iterator[Row]:
    """Yield rows up to a maximum total size, or up to the last one available."""
    length = 0
    for row in rows:
        yield row
        length += max(len(row.text), row.size)
        if length > LARGEST_TEXT or not more_waits():
            return


_MOST = 100_000
_SHOWN = 100


class Identities:
    """A check that warns once of a duplicate among the first 100,000 ids."""

    def __init__(self) -> None:
        # Only hashes, because an id can be as long as a line.
        self._places: dict[int, str] = {}
        self._looks = True

    def note(self, rows: Iterable[Row]) -> None:
        """Check the ids of these rows."""
        for row in rows:
            if self._looks and row.identity is not None and row.identity[1] not in (None, ""):
                self._look(row, *row.identity)

    def _look(self, row: Row, name: str, value: object) -> None:
        key = hash((name, repr(value)))
        if (first := self._places.get(key)) is not None:
            output.warn(
                f"{name} {repr(value)[:_SHOWN]} is not unique: it is on {first} and on {row.place}."
            )
        self._places[key] = row.place
        self._looks = first is None and len(self._places) < _MOST


def answering(loaded: Loaded) -> Ask:
    """Return the operation for many prompts, one by one if the backend has no batches."""
    from core.protocols import Capability

    together = Capability.BATCH_GENERATE in loaded.capabilities
    return loaded.model.batch_generate if together else _one_by_one(loaded.model)


def _one_by_one(model: TextModel) -> Any:
    """Return a ``batch_generate`` for backends without one: one stream after the other."""

    def answer(prompt: str, config: GenerateConfig) -> BatchResult:
        tokens: list[Token] = []
        try:
            with closing(model.generate(prompt, config)) as stream:
                tokens.extend(stream)
        except CoreError as error:
            return BatchResult(tuple(tokens), "error", error)
        return BatchResult(tuple(tokens), stream.finish_reason or "stop")

    def answers(prompts: Sequence[str], config: GenerateConfig) -> list[BatchResult]:
        return [answer(prompt, config) for prompt in prompts]

    return answers
