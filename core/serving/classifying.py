"""``classify`` of a list and of a stream of prompts: blocks of them, and their results in order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
_LIST = 512, 8192


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

    def of_list(self, prompts: Sequence[str]) -> Iterator[ClassifyResult]:
        """One result per prompt, in order. Raises `core.LabelError`."""
        return self._in_order(_blocks(iter(prompts), *_LIST))

    def of_stream(self, prompts: Iterable[object]) -> Iterator[ClassifyResult]:
        """One result per prompt, in order, in blocks of bounded size."""
        return self._in_order(_blocks(iter(prompts), *_STREAM))

    def _in_order(self, blocks: Iterable[Sequence[str]]) -> Iterator[ClassifyResult]:
        found: dict[int, ClassifyResult] = {}
        following = 0
        for row, result in self._classifier.results(self._rows(blocks, found)):
            found[row.index] = result
            if result.error is None:
                self.prompt_tokens += len(row.ids)
                self.read += 1
            while following in found:
                yield found.pop(following)
                following += 1
        yield from (found[index] for index in sorted(found))

    def _rows(
        self, blocks: Iterable[Sequence[str]], found: dict[int, ClassifyResult]
    ) -> Iterator[Sequence[Row]]:
        """Those of each block; errors are ``found`` at once."""
        for block in self._tokenised(blocks):
            found |= {index: ClassifyResult(error=error) for index, error in block.errors.items()}
            yield block.rows

    def _tokenised(self, blocks: Iterable[Sequence[str]]) -> Iterator[Block]:
        """Each block; the one behind it is tokenised while it runs."""
        with ThreadPoolExecutor(1, thread_name_prefix="core-tokenizer") as pool:
            ahead: Future[Block] | None = None
            start = 0
            for block in blocks:
                following = begin(pool, partial(self._tokenise, block, start))
                start += len(block)
                if ahead is not None:
                    yield ahead.result()
                ahead = following
            if ahead is not None:
                yield ahead.result()

    def _tokenise(self, prompts: Sequence[str], start: int) -> Block:
        rows, errors = classify_rows(self._model, prompts, self._config)
        return Block(
            [replace(row, index=start + row.index) for row in rows],
            {start + index: error for index, error in errors.items()},
        )


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
            return list(classification.of_list(rows))

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


def _blocks(prompts: Iterator[object], size: int, largest: int) -> Iterator[list[str]]:
    """Blocks of ``size`` prompts, then of twice as many, up to the largest."""
    taken = 0
    while block := checked_prompts("classify_iter", list(islice(prompts, size)), taken):
        yield block
        size, taken = min(2 * size, largest), taken + len(block)
