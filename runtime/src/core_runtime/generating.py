"""The half of a loaded model that generates, over the one engine that serves every call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Unpack

from core import validate
from core.clock import STOPPED, Check, RequestClock
from core.errors import CoreError, GenerationCancelled, GenerationTimeout
from core.options import GenerateConfig, GenerateOptions
from core.protocols import Capability
from core.support import checked_prompts
from core.types import BatchResult, Conversation, GenerateMetrics, Token
from core_runtime.engine import Engine
from core_runtime.model import InProcessModel
from core_runtime.request import End, Item, Request, Sink, is_repeatable, own_error, reason_of
from core_runtime.rows import checked_ids, ids_error, packed, prompt_error
from core_runtime.served import ServedModel
from core_runtime.stream import RequestStream
from core_runtime.token_prompts import TokenIds, TokenSequence, token_prompts
from core_runtime.tokenising import Tokenising
from core_runtime.waiting import Job

_STRIDE = 0xD1342543DE82EF95  # an odd constant, and not that of `noise`: seeds far apart


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt's token ids, or what keeps it from running; ``samples`` rows continue it."""

    ids: Sequence[int]
    error: CoreError | None = None
    samples: int = 1


class Generation:
    """One call that generates.

    Its rows are numbered in the order of the prompts, samples of one prompt side by side. With
    ``equal_rows`` one request answers all rows that have the same tokens and draw alike.
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
        self._rows: dict[Hashable, list[int]] = {}  # of each request in turn, by what decides them
        self._repeated = 0  # tokens of prompts that have no request of their own
        self._jobs: list[Job] = []  # submitted when the first token is asked for
        self.ends: dict[int, End] = {}
        self.rows = 0

        for prompt in prompts:
            if prompt.error is None:
                self._add(model, prompt, config)
            else:
                failed = End(reason_of(prompt.error), prompt.error, GenerateMetrics())
                self.ends.update((self.rows + i, failed) for i in range(prompt.samples))
                self.rows += prompt.samples

    def tokens(self) -> Iterator[tuple[int, Token]]:
        """Row and token, as they are made; afterwards ``ends`` has every row's end.

        Closed early, it stops the rows that still run.
        """
        with self._running() as made:
            for rows, token in made:
                for row in rows:
                    yield row, token

    def results(self) -> list[BatchResult]:
        """Run every row to its end; their results in order."""
        found: dict[int, list[Token]] = {rows[0]: [] for rows in self._rows.values()}
        with self._running() as made:
            for rows, token in made:
                found[rows[0]].append(token)

        # Equal rows share what cannot be changed.
        tokens: dict[int, tuple[Token, ...]] = {}
        for rows in self._rows.values():
            tokens.update(dict.fromkeys(rows, tuple(found[rows[0]])))
        return [
            BatchResult(tokens.get(row, ()), self.ends[row].reason, self.ends[row].error)
            for row in range(self.rows)
        ]

    @property
    def prompt_tokens(self) -> int:
        """How many tokens the prefill of each prompt that ran had, together."""
        return sum(len(job.ids) for job in self._jobs) + self._repeated

    @property
    def cached_prompt_tokens(self) -> int:
        """How many of them did not have to be computed."""
        return sum(job.requests[0].cached for job in self._jobs) + self._repeated

    @property
    def generated_tokens(self) -> int:
        """How many tokens all rows have sent, those that were stopped included."""
        answered = zip(self._requests, self._rows.values(), strict=True)
        return sum(request.emitted * len(rows) for request, rows in answered)

    def _add(self, model: ServedModel, prompt: Prompt, config: GenerateConfig) -> None:
        """Number the prompt's rows; those that are equal to none before them get a request."""
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
            self._jobs.append(Job(prompt.ids, tuple(requests)))
        else:
            self._repeated += len(prompt.ids)

    def _key(self, prompt: Prompt, config: GenerateConfig) -> Hashable:
        """What decides the tokens of the row that is numbered next."""
        if not (self._equal_rows and is_repeatable(config)):
            return self.rows
        return packed(prompt.ids), config.seed if config.temperature else None

    @contextmanager
    def _running(self) -> Iterator[Iterator[tuple[list[int], Token]]]:
        """Submit the requests, for as long as their tokens are read."""
        try:
            self._engine.submit(self._jobs)
            yield self._made()
        finally:
            for request in self._requests:
                request.abandon()

    def _made(self) -> Iterator[tuple[list[int], Token]]:
        """Yield each token, and the equal rows that it is for."""
        while len(self.ends) < self.rows:
            rows, item = self._engine.receive(self._queue, self._look)
            if isinstance(item, End):
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


def _own_end(end: End) -> End:
    """The end of a row that is equal to another: its error is its own."""
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


class GeneratingModel(InProcessModel):
    """A loaded model that generates: streams, batches, and the way in and out by token ids.

    ``capabilities``: what the backend declares.
    """

    def __init__(
        self,
        backend: str,
        served: ServedModel,
        engine: Engine,
        capabilities: frozenset[Capability],
    ) -> None:
        super().__init__(backend, served, capabilities)
        self._engine = engine

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> RequestStream:
        """Continue a prompt, token by token. See `core.TextModel.generate`."""
        request = self.checked_generate(Capability.GENERATE, config, options)
        return self._stream(checked_prompts("generate", [prompt])[0], request)

    def submit(self, prompt: str, config: GenerateConfig | None = None, /) -> RequestStream:
        """`generate` that begins now, whether or not the stream is read."""
        request = self.checked_generate(Capability.SUBMITTING, config, {})
        return self._stream(checked_prompts("submit", [prompt])[0], request).start()

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> RequestStream:
        """Answer a conversation, in the model's own chat format or its family's.

        The template runs at the call, which raises what is wrong with it (`ChatTemplateError`); a
        cancel or a timeout meanwhile is raised from the stream, as it is later. The timeout is one
        for both; what passes between the call and the first ``next()`` is not counted.
        """
        request = self.checked_generate(Capability.CHAT, config, options)
        clock = RequestClock(request)

        def check() -> None:
            self.check_open()
            clock.check()

        try:
            prompt = self._served.tokenizer.render_chat(messages, check)
        except (GenerationCancelled, GenerationTimeout) as error:
            return self._stopped(error)
        return self._stream(prompt, request, clock.seconds)

    def batch_generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> list[BatchResult]:
        """Continue many prompts, as many at once as there are slots; results in order."""
        request = self.checked_generate(Capability.BATCH_GENERATE, config, options)
        rows = checked_prompts("batch_generate", prompts)
        with self._counted(partial(checked, self._served, rows), request) as generation:
            return generation.results()

    def batch_stream(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> Iterator[tuple[int, Token]]:
        """Row index and token, as they are made; the first row that failed raises at the end.

        Work starts at the first ``next()``; closing the iterator stops every row.
        """
        request = self.checked_generate(Capability.BATCH_STREAMING, config, options)
        return self._streamed(checked_prompts("batch_stream", prompts), request)

    def generate_tokens(
        self,
        prompts: TokenIds,
        config: GenerateConfig | None = None,
        /,
        *,
        attention_mask: TokenIds | None = None,
        num_samples: int = 1,
        **options: Unpack[GenerateOptions],
    ) -> list[TokenSequence]:
        """`batch_generate` on token ids: one prompt or many, ragged, or padded on the left.

        ``attention_mask`` has 0 for padding and 1 for a prompt's tokens. Each prompt gets
        ``num_samples`` rows, side by side, from one prefill; with a seed the first of them draws
        what ``generate`` draws, and the others differ. Raises `OptionError`, `TypeError`.
        """
        request = self.checked_generate(Capability.BATCH_GENERATE, config, options)
        samples = validate.integer("num_samples", num_samples, 1)
        prompts_ids = token_prompts(prompts, attention_mask)
        rows = [Prompt(ids, ids_error(self._served, ids), samples) for ids in prompts_ids]

        with self._counted(lambda check: rows, request) as generation:
            results = generation.results()

        return [
            TokenSequence.of(rows[index // samples].ids, result)
            for index, result in enumerate(results)
        ]

    def _stream(self, prompt: str, config: GenerateConfig, spent: float = 0.0) -> RequestStream:
        def make(sink: Sink) -> Request:
            self.check_open()
            clock = RequestClock(config, spent)
            ids = checked_ids(self._served, prompt, clock.check)
            return Request(self._served, ids, config, sink, clock)

        return RequestStream(make, self._engine, self.record)

    def _stopped(self, error: GenerationCancelled | GenerationTimeout) -> RequestStream:
        """The stream of a request that was stopped before it could be made."""

        def make(sink: Sink) -> Request:
            raise error.with_traceback(None)

        return RequestStream(make, self._engine, self.record)

    def _streamed(self, rows: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        self.check_open()
        with self._counted(partial(checked, self._served, rows), config) as generation:
            yield from generation.tokens()
        failed = (generation.ends[row].error for row in range(generation.rows))
        error = next((error for error in failed if error is not None), None)
        if error is not None:
            raise error

    @contextmanager
    def _counted(
        self, rows: Callable[[Check], Sequence[Prompt]], config: GenerateConfig
    ) -> Iterator[Generation]:
        """Make a call over many rows, and record its metrics when it has ended."""
        engine, clock = self._engine, RequestClock(config)
        before = engine.watch.read()
        generation = Generation(
            self._served, engine, rows(clock.check), config, clock, self.equal_rows
        )

        try:
            yield generation
        finally:
            after = engine.watch.read()
            self.record_with_memory(
                GenerateMetrics(
                    prompt_tokens=generation.prompt_tokens,
                    cached_prompt_tokens=generation.cached_prompt_tokens,
                    generated_tokens=generation.generated_tokens,
                    prefill_seconds=after.prefill - before.prefill,
                    decode_seconds=after.decode - before.decode,
                    total_seconds=clock.seconds,
                )
            )
