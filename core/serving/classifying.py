"""``classify`` of a list and of a stream of prompts: blocks of them, and their results in order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Protocol, Unpack

from core.capability import Capability
from core.clock import RequestClock
from core.errors import CoreError
from core.options import ClassifyOptions, GenerateConfig
from core.serving.generating import GeneratingModel
from core.serving.reading import Row, classify_rows
from core.serving.served import ServedModel
from core.serving.threads import begin
from core.support import checked_prompts, checked_stream
from core.types import ClassifyResult

_STREAM = 64, 1024  # prompts of a block, first and last: early answers, and then more to share
_LIST = 512, 8192  # the first is tokenised while nothing runs


class Classifier(Protocol):
    """What computes; ``reused`` counts tokens of prompts that it did not have to."""

    reused: int

    def results(self, blocks: Iterable[Sequence[Row]]) -> Iterator[tuple[Row, ClassifyResult]]:
        """Each row's result, in whatever order the rows of a block run best."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    """Prompts that were tokenised together: rows that can run, and the others' errors."""

    rows: Sequence[Row]
    errors: Mapping[int, CoreError]


class Classification:
    """One call; ``prompt_tokens`` and ``read`` count those, and the prompts, without an error."""

    def __init__(self, model: ServedModel, classifier: Classifier, config: GenerateConfig) -> None:
        self._model, self._classifier, self._config = model, classifier, config
        self.prompt_tokens = self.read = 0

    @property
    def reused(self) -> int:
        """How many of the prompts' tokens did not have to be computed."""
        return min(self._classifier.reused, self.prompt_tokens)

    def of_list(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        """One result per prompt, in order. Raises `core.LabelError`."""
        with closing(self._tokenised(_slices(prompts))) as blocks:
            return self._results(blocks)

    def of_stream(self, prompts: Iterable[object]) -> Iterator[ClassifyResult]:
        """One result per prompt, in order. A block is answered before another one is asked for."""
        with closing(self._tokenised(_blocks(iter(prompts)))) as blocks:
            for block in blocks:
                yield from self._results([block])

    def _results(self, blocks: Iterable[Block]) -> list[ClassifyResult]:
        """Those of all blocks, which run one behind another without a pause."""
        found: dict[int, ClassifyResult] = {}

        def rows() -> Iterator[Sequence[Row]]:
            for block in blocks:
                found.update((i, ClassifyResult(error=error)) for i, error in block.errors.items())
                yield block.rows

        for row, result in self._classifier.results(rows()):
            found[row.index] = result
            if result.error is None:
                self.prompt_tokens += len(row.ids)
                self.read += 1
        return [found[index] for index in sorted(found)]

    def _tokenised(self, blocks: Iterable[Sequence[str]]) -> Generator[Block, None, None]:
        """Each block; the one behind it is tokenised while it runs."""
        with ThreadPoolExecutor(1, thread_name_prefix="core-tokenizer") as pool:
            ahead: Future[Block] | None = None
            first = 0
            for block in blocks:
                following = begin(pool, partial(self._tokenise, block, first))
                first += len(block)
                if ahead is not None:
                    yield ahead.result()
                ahead = following
            if ahead is not None:
                yield ahead.result()

    def _tokenise(self, prompts: Sequence[str], first: int) -> Block:
        return Block(*classify_rows(self._model, prompts, self._config, first))


class ClassifyingModel(GeneratingModel):
    """A model that generates, and classifies through a `Classifier`."""

    @abstractmethod
    def classifier(self, request: GenerateConfig, clock: RequestClock) -> Classifier:
        """The one of a call with these options."""

    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Read the next-token distribution of each prompt; one result per prompt, in order.

        What prompts begin with alike is computed once. Labels are scored by joint
        log-probability: one token costs nothing extra, and what labels of several begin with
        alike is computed once for each prompt.
        """
        request = self.checked_classify(Capability.CLASSIFY, config, options)
        rows = checked_prompts("classify", prompts)
        with self._classification(request) as classification:
            return classification.of_list(rows)

    def classify_iter(
        self,
        prompts: Iterable[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> Iterator[ClassifyResult]:
        """`classify` for a stream of prompts, in memory that does not grow with it.

        Prompts are taken in blocks of 64 to 1,024, from the thread that iterates.
        """
        request = self.checked_classify(Capability.CLASSIFY_STREAMING, config, options)
        return self._classified(checked_stream("classify_iter", prompts), request)

    def _classified(
        self, prompts: Iterable[object], request: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        self.check_open()
        with self._classification(request) as classification:
            yield from classification.of_stream(prompts)

    @contextmanager
    def _classification(self, request: GenerateConfig) -> Iterator[Classification]:
        """A call, and its metrics when it has ended."""
        clock = RequestClock(request)
        call = Classification(self._served, self.classifier(request, clock), request)
        try:
            yield call
        finally:
            self.record_reading(call.prompt_tokens, call.reused, call.read, clock.seconds)


def _sizes(size: int, largest: int) -> Iterator[int]:
    """Of blocks: each twice the one before, up to the largest."""
    while True:
        yield size
        size = min(2 * size, largest)


def _slices(prompts: Sequence[str]) -> Iterator[Sequence[str]]:
    first = 0
    for size in _sizes(*_LIST):
        if first >= len(prompts):
            return
        yield prompts[first : first + size]
        first += size


def _blocks(prompts: Iterator[object]) -> Iterator[Sequence[str]]:
    taken = 0
    for size in _sizes(*_STREAM):
        block = checked_prompts("classify_iter", list(islice(prompts, size)), taken)
        if not block:
            return
        yield block
        taken += len(block)
