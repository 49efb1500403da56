"""One call that generates: its rows, which of them are equal, and their results."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from core.errors import CoreError
from core.kit.base import STOPPED, Check, RequestClock
from core.options import GenerateConfig
from core.types import BatchResult, GenerateMetrics, Token
from core_runtime.engine import Engine
from core_runtime.request import Item, Request, RequestEnd, is_repeatable, own_error, reason_of
from core_runtime.rows import ids_error, packed, prompt_error
from core_runtime.served import ServedModel
from core_runtime.text.tokenising import Tokenising
from core_runtime.waiting import PromptJob

_STRIDE = 0xD1342543DE82EF95  # an odd constant, other than `noise`'s: seeds lie far apart


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt's token ids, or its error; ``samples`` rows continue it."""

    ids: Sequence[int]
    error: CoreError | None = None
    samples: int = 1


class GenerateCall:
    """One call that generates.

    Its rows are numbered in the order of the prompts, with the samples of a prompt in a row. With
    ``equal_rows`` one request answers all rows that have the same tokens and the same draws.
    """

    def __init__(
        self,
        model: ServedModel,
        engine: Engine,
        prompts: Sequence[Prompt],
        config: GenerateConfig,
        clock: RequestClock,
        equal_rows: bool = True,
    ) -> None:
        self._clock, self._equal_rows = clock, equal_rows
        self._queue: SimpleQueue[tuple[list[int], Item]] = SimpleQueue()
        self._engine = engine
        self._requests: list[Request] = []
        self._rows: dict[Hashable, list[int]] = {}  # of each request, in order, by their key
        self._repeated = 0  # tokens of prompts without a separate request
        self._jobs: list[PromptJob] = []  # submitted when the first token is read
        self.ends: dict[int, RequestEnd] = {}
        self.rows = 0

        for prompt in prompts:
            if prompt.error is None:
                self._add(model, prompt, config)
            else:
                failed = RequestEnd(reason_of(prompt.error), prompt.error, GenerateMetrics())
                self.ends.update((self.rows + i, failed) for i in range(prompt.samples))
                self.rows += prompt.samples

    def tokens(self) -> Iterator[tuple[int, Token]]:
        """Yield row and token as they are drawn; afterwards ``ends`` has every row's end.

        Closed early, it stops the rows that still run.
        """
        with self._running() as tokens_of_rows:
            for rows, token in tokens_of_rows:
                for row in rows:
                    yield row, token

    def results(self) -> list[BatchResult]:
        """Run every row to its end; return their results in order."""
        tokens_by_row: dict[int, list[Token]] = {rows[0]: [] for rows in self._rows.values()}
        with self._running() as tokens_of_rows:
            for rows, token in tokens_of_rows:
                tokens_by_row[rows[0]].append(token)

        # Equal rows share the immutable tokens.
        tokens: dict[int, tuple[Token, ...]] = {}
        for rows in self._rows.values():
            tokens.update(dict.fromkeys(rows, tuple(tokens_by_row[rows[0]])))
        return [
            BatchResult(tokens.get(row, ()), self.ends[row].reason, self.ends[row].error)
            for row in range(self.rows)
        ]

    @property
    def prompt_tokens(self) -> int:
        """Total number of tokens in the prefills of the prompts that ran."""
        return sum(len(job.ids) for job in self._jobs) + self._repeated

    @property
    def cached_prompt_tokens(self) -> int:
        """Number of those tokens that did not have to be computed."""
        return sum(job.requests[0].cached for job in self._jobs) + self._repeated

    @property
    def generated_tokens(self) -> int:
        """Number of tokens that all rows have sent, including stopped rows."""
        answered = zip(self._requests, self._rows.values(), strict=True)
        return sum(request.emitted * len(rows) for request, rows in answered)

    def _add(self, model: ServedModel, prompt: Prompt, config: GenerateConfig) -> None:
        """Number the prompt's rows; a row that equals no earlier one gets a request."""
        requests = []
        for sample in range(prompt.samples):
            own = _of_sample(config, sample)
            rows = self._rows.setdefault(self._key(prompt, own), [])
            if not rows:
                sink = partial(self._put, rows)
                requests.append(Request(model, prompt.ids, own, sink, self._clock))
            rows.append(self.rows)
            self.rows += 1

        self._requests += requests
        if requests:
            self._jobs.append(PromptJob(prompt.ids, tuple(requests)))
        else:
            self._repeated += len(prompt.ids)

    def _key(self, prompt: Prompt, config: GenerateConfig) -> Hashable:
        """Return what decides the tokens of the row that is numbered next."""
        if not (self._equal_rows and is_repeatable(config)):
            return self.rows
        return packed(prompt.ids), config.seed if config.temperature else None

    @contextmanager
    def _running(self) -> Iterator[Iterator[tuple[list[int], Token]]]:
        """Submit the requests, for as long as their tokens are read."""
        try:
            self._engine.submit(self._jobs)
            yield self._rows_and_tokens()
        finally:
            for request in self._requests:
                request.abandon()

    def _rows_and_tokens(self) -> Iterator[tuple[list[int], Token]]:
        """Yield each token with the equal rows that get it."""
        while len(self.ends) < self.rows:
            rows, item = self._engine.receive(self._queue, self._look)
            if isinstance(item, RequestEnd):
                self.ends.update((row, _own_end(item)) for row in rows[1:])
                self.ends[rows[0]] = item
            elif rows[0] not in self.ends:  # a row that was given up may still send
                for token in item:
                    yield rows, token

    def _look(self) -> None:
        for request in self._requests:
            request.look()

    def _put(self, rows: list[int], item: Item) -> None:
        self._queue.put((rows, item))


def _own_end(end: RequestEnd) -> RequestEnd:
    """Return the end of a row that is equal to another: its error is its own."""
    return end if end.error is None else dataclasses.replace(end, error=own_error(end.error))


def checked(model: ServedModel, prompts: Sequence[str], check: Check) -> list[Prompt]:
    """Tokenise what can run; the rest carries its error, or all do what ``check`` raises."""
    errors = [prompt_error(model, prompt) for prompt in prompts]
    sound = [prompt for prompt, error in zip(prompts, errors, strict=True) if error is None]
    try:
        encoded = iter(Tokenising(model.tokenizer, check).encode_batch(sound))
    except STOPPED as stopped:
        stopped.with_traceback(None)
        return [Prompt((), error or stopped) for error in errors]
    rows = [Prompt((), error) if error else Prompt(next(encoded)) for error in errors]
    return [row if row.error else Prompt(row.ids, ids_error(model, row.ids)) for row in rows]


def _of_sample(config: GenerateConfig, sample: int) -> GenerateConfig:
    """Sample 0 draws what ``generate`` with this seed draws; the others have seeds of their own."""
    if config.seed is None or sample == 0:
        return config
    return dataclasses.replace(config, seed=(config.seed + sample * _STRIDE) % 2**64)
