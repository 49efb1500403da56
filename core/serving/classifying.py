"""``classify`` of a list and of a stream of prompts: blocks of them, and their results in order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
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

_FIRST_BLOCK, _BLOCK = 64, 1024  # of a stream: the first answers come early, the others share more
_LIST_BLOCK = 8192  # of a list

Tokenised = tuple[list[Row], dict[int, CoreError]]


class Classifier(Protocol):
    """What computes; ``reused`` counts tokens of prompts that it did not have to."""

    reused: int

    def results(self, rows: Sequence[Row]) -> Iterator[tuple[Row, ClassifyResult]]:
        """Each row's result, in whatever order they run best."""
        ...


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
        starts = range(0, len(prompts), _LIST_BLOCK)
        return self._in_blocks(prompts[start : start + _LIST_BLOCK] for start in starts)

    def of_stream(self, prompts: Iterable[object]) -> Iterator[ClassifyResult]:
        """One result per prompt, in order, in blocks of bounded size."""
        return self._in_blocks(_blocks(iter(prompts)))

    def _in_blocks(self, blocks: Iterable[Sequence[str]]) -> Iterator[ClassifyResult]:
        """A block is tokenised while the one before runs."""
        with ThreadPoolExecutor(1, thread_name_prefix="core-tokenizer") as pool:
            ahead: tuple[int, Future[Tokenised]] | None = None
            for block in blocks:
                following = (len(block), begin(pool, partial(self._tokenise, block)))
                if ahead is not None:
                    yield from self._run(ahead[0], ahead[1].result())
                ahead = following
            if ahead is not None:
                yield from self._run(ahead[0], ahead[1].result())

    def _tokenise(self, prompts: Sequence[str]) -> Tokenised:
        return classify_rows(self._model, prompts, self._config)

    def _run(self, count: int, tokenised: Tokenised) -> list[ClassifyResult]:
        rows, errors = tokenised
        found = {index: ClassifyResult(error=error) for index, error in errors.items()}
        for row, result in self._classifier.results(rows):
            found[row.index] = result
            if result.error is None:
                self.prompt_tokens += len(row.ids)
                self.read += 1
        return [found[index] for index in range(count)]


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


def _blocks(prompts: Iterator[object]) -> Iterator[list[str]]:
    size, taken = _FIRST_BLOCK, 0
    while block := checked_prompts("classify_iter", list(islice(prompts, size)), taken):
        yield block
        size, taken = min(2 * size, _BLOCK), taken + len(block)
