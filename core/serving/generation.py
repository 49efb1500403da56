"""Many prompts at once: what ``batch_generate``, ``batch_stream`` and ``generate_tokens`` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from core.errors import CoreError
from core.options import GenerateConfig
from core.serving.engine import Engine
from core.serving.prompts import ids_error, text_error
from core.serving.request import End, Item, Request
from core.serving.served import ServedModel
from core.serving.waiting import Job
from core.types import BatchResult, GenerateMetrics, Token

_STRIDE = 0xD1342543DE82EF95  # an odd constant, and not that of `noise`: seeds far apart


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt's token ids, or what keeps it from running; ``samples`` rows continue it."""

    ids: Sequence[int]
    error: CoreError | None = None
    samples: int = 1


class Generation:
    """One call. Rows are numbered in the order of the prompts, samples of one side by side."""

    def __init__(
        self,
        model: ServedModel,
        engine: Engine,
        prompts: Sequence[Prompt],
        config: GenerateConfig,
    ) -> None:
        self._queue: SimpleQueue[tuple[int, Item]] = SimpleQueue()
        self._engine = engine
        self._requests: list[Request] = []
        self.ends: dict[int, End] = {}
        self.rows = 0
        jobs = []
        for prompt in prompts:
            if prompt.error is None:
                jobs.append(self._job(model, prompt, config))
            else:
                failed = End("error", prompt.error, GenerateMetrics())
                self.ends.update((self.rows + i, failed) for i in range(prompt.samples))
                self.rows += prompt.samples
        self._jobs = jobs

    def tokens(self) -> Iterator[tuple[int, Token]]:
        """Row and token, as they are made; when it ends, ``ends`` has every row's end.

        Closed early, it stops the rows that still run.
        """
        try:
            self._engine.submit(self._jobs)
            while len(self.ends) < self.rows:
                row, item = self._engine.receive(self._queue)
                if isinstance(item, End):
                    self.ends[row] = item
                else:
                    for token in item:
                        yield row, token
        finally:
            for request in self._requests:
                request.abandon()

    def results(self) -> list[BatchResult]:
        """Every row, run to its end."""
        found: list[list[Token]] = [[] for _ in range(self.rows)]
        for row, token in self.tokens():
            found[row].append(token)
        return [
            BatchResult(tuple(tokens), self.ends[row].reason, self.ends[row].error)
            for row, tokens in enumerate(found)
        ]

    @property
    def prompt_tokens(self) -> int:
        """How many tokens the prefill of each prompt that ran had, together."""
        return sum(len(job.ids) for job in self._jobs)

    @property
    def generated_tokens(self) -> int:
        """Over all rows, those included that were stopped."""
        return sum(request.emitted for request in self._requests)

    def _job(self, model: ServedModel, prompt: Prompt, config: GenerateConfig) -> Job:
        requests = []
        for sample in range(prompt.samples):
            row, own = self.rows, _of_sample(config, sample)
            requests.append(Request(model, prompt.ids, own, partial(self._put, row)))
            self.rows += 1
        self._requests += requests
        return Job(prompt.ids, tuple(requests))

    def _put(self, row: int, item: Item) -> None:
        self._queue.put((row, item))


def checked(model: ServedModel, prompts: Sequence[str]) -> list[Prompt]:
    """Tokenise what can run; the rest carries its error."""
    errors = [text_error(prompt) for prompt in prompts]
    sound = [prompt for prompt, error in zip(prompts, errors, strict=True) if error is None]
    encoded = iter(model.tokenizer.encode_batch(sound))
    rows = [Prompt((), error) if error else Prompt(next(encoded)) for error in errors]
    return [row if row.error else Prompt(row.ids, ids_error(model, row.ids)) for row in rows]


def _of_sample(config: GenerateConfig, sample: int) -> GenerateConfig:
    """Sample 0 draws what ``generate`` with this seed draws; the others have seeds of their own."""
    if config.seed is None or sample == 0:
        return config
    return dataclasses.replace(config, seed=(config.seed + sample * _STRIDE) % 2**64)
