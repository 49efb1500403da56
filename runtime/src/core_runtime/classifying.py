"""``classify`` for a list and for a stream of prompts: in blocks, with results in order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Unpack

from core.errors import CoreError
from core.kit.base import STOPPED, RequestClock
from core.kit.support import block_sizes, checked_prompts, checked_stream
from core.options import ClassifyOptions, GenerateConfig
from core.protocols import Capability
from core.types import ClassifyResult
from core_runtime.equal_rows import EqualRows, RowComputation
from core_runtime.generating import GeneratingModel
from core_runtime.label_mass import LabelMass
from core_runtime.model import InProcessModel
from core_runtime.rows import PromptRow, classify_rows, draws_alike
from core_runtime.served import ServedModel
from core_runtime.threads import begin

_STREAM = 64, 1024  # prompts per block, first and largest: early results, then more sharing
_LIST = 512, 8192  # the first is tokenised while nothing runs
_QUICK = (
    4096  # characters of prompts and labels that are tokenised in less time than a thread takes
)


Classifier = RowComputation[PromptRow, ClassifyResult]
"""The backend's part of a call, which computes the results."""


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """Prompts tokenised together: rows that can run, and the others' errors."""

    rows: Sequence[PromptRow]
    errors: Mapping[int, CoreError]


class ClassifyCall:
    """One call of `classify`.

    ``read`` counts the prompts without an error, ``prompt_tokens`` their tokens.
    """

    def __init__(
        self,
        model: ServedModel,
        classifier: Classifier,
        config: GenerateConfig,
        clock: RequestClock,
    ) -> None:
        self._model, self._classifier, self._config = model, classifier, config
        self._clock = clock
        self.prompt_tokens = self.read = 0

    @property
    def reused(self) -> int:
        """The number of the prompts' tokens that did not have to be computed."""
        return self._classifier.reused

    def results(self, blocks: Iterable[PromptBlock]) -> list[ClassifyResult]:
        """Run the blocks one after another; return the results in prompt order."""
        results: dict[int, ClassifyResult] = {}
        for row, result in self._classifier.results(self._rows(blocks, results)):
            results[row.index] = result
            if result.error is None:
                self.prompt_tokens += len(row.ids)
                self.read += 1
        return [results[index] for index in sorted(results)]

    def _rows(
        self, blocks: Iterable[PromptBlock], results: dict[int, ClassifyResult]
    ) -> Iterator[Sequence[PromptRow]]:
        """Yield the rows of each block that can run; the others' errors go into ``results``."""
        for block in blocks:
            results.update((i, ClassifyResult(error=error)) for i, error in block.errors.items())
            yield block.rows

    def tokenised(
        self, blocks: Iterable[Sequence[str]]
    ) -> AbstractContextManager[Iterable[PromptBlock]]:
        """Return a context that yields the blocks as rows; leave it before recording the metrics.

        Raises `core.LabelError` as blocks are taken.
        """
        return closing(self._tokenised(blocks))

    def tokenised_here(
        self, prompts: Sequence[str]
    ) -> AbstractContextManager[Iterable[PromptBlock]]:
        """Do `tokenised` for one block of short prompts, without another thread."""
        return nullcontext([self._tokenise(prompts, 0)])

    def _tokenised(self, blocks: Iterable[Sequence[str]]) -> Generator[PromptBlock, None, None]:
        """Yield each block in turn, while the next one is tokenised on a thread."""
        with ThreadPoolExecutor(1, thread_name_prefix="core-tokenizer") as pool:
            ahead: Future[PromptBlock] | None = None
            first = 0

            try:
                for block in blocks:
                    # The next block starts before the previous one is yielded.
                    following = begin(pool, partial(self._tokenise, block, first))
                    first += len(block)

                    if ahead is not None:
                        yield ahead.result()
                    ahead = following

                if ahead is not None:
                    yield ahead.result()
            except BaseException:  # an interrupt, or the call ends early: the pool is waited for
                self._clock.stop()
                raise

    def _tokenise(self, prompts: Sequence[str], first: int) -> PromptBlock:
        try:
            return PromptBlock(
                *classify_rows(self._model, prompts, self._config, self._clock.check, first)
            )
        except STOPPED as error:
            error.with_traceback(None)
            return PromptBlock((), {first + index: error for index in range(len(prompts))})


class ClassifyingCalls(InProcessModel):
    """The calls of a model that classifies through a `Classifier`."""

    @cached_property
    def _label_mass(self) -> LabelMass:
        return LabelMass()

    @abstractmethod
    def classifier(self, request: GenerateConfig, clock: RequestClock) -> Classifier:
        """Make the `Classifier` of one call."""

    def prompt_options(self, request: GenerateConfig) -> GenerateConfig:
        """Return the options with which prompts are tokenised: the request's."""
        return request

    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Read the next-token distribution of each prompt; one result per prompt, in order.

        Duplicate prompts are computed once, unless each draws a token without a seed; so are shared
        prefixes of prompts. Labels are scored by joint log-probability: a label of one token costs
        nothing extra, and a shared prefix of labels is computed once per prompt.
        """
        request = self.checked_classify(Capability.CLASSIFY, config, options)
        rows = checked_prompts("classify", prompts)
        with (
            self._classification(request, len(rows) > 1, False) as call,
            call.tokenised_here(rows)
            if _is_quick(rows, request.labels)
            else call.tokenised(_slices(rows)) as blocks,
        ):
            results = call.results(blocks)
        self._label_mass.look(results)
        return results

    def classify_iter(
        self,
        prompts: Iterable[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> Iterator[ClassifyResult]:
        """Do `classify` for a stream of prompts, in constant memory.

        Prompts are taken in blocks of 64 to 1,024, from the thread that iterates.
        """
        request = self.checked_classify(Capability.CLASSIFY_STREAMING, config, options)
        return self._classified(checked_stream("classify_iter", prompts), request)

    def _classified(
        self, prompts: Iterable[object], request: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        self.check_open()
        with (
            self._classification(request, True, True) as call,
            call.tokenised(_blocks(iter(prompts))) as taken,
        ):
            for block in taken:  # one is answered before the next is read
                results = call.results([block])
                self._label_mass.look(results)
                yield from results

    @contextmanager
    def _classification(
        self, request: GenerateConfig, several: bool, given_out: bool
    ) -> Iterator[ClassifyCall]:
        """Open one call, and record its metrics at its end.

        ``several``: some of its rows may be equal; ``given_out``: see `EqualRows`.
        """
        clock = RequestClock(request)
        classifier = self.classifier(request, clock)
        if several and self.equal_rows and draws_alike(request):
            classifier = EqualRows(classifier, given_out=given_out)
        call = ClassifyCall(self._served, classifier, self.prompt_options(request), clock)

        try:
            yield call
        finally:
            clock.stop()  # a part of an interrupted call may still run
            self.record_reading(call.prompt_tokens, call.reused, call.read, clock.seconds)


class ClassifyingModel(ClassifyingCalls, GeneratingModel):
    """A model that generates, and classifies through a `Classifier`."""


def _is_quick(prompts: Sequence[str], labels: Sequence[str]) -> bool:
    """Return True if the texts are so short that tokenising them need not be interruptible."""
    return sum(map(len, prompts)) + len(prompts) * sum(map(len, labels)) <= _QUICK


def _slices(prompts: Sequence[str]) -> Iterator[Sequence[str]]:
    first = 0
    for size in block_sizes(*_LIST):
        if first >= len(prompts):
            return
        yield prompts[first : first + size]
        first += size


def _blocks(prompts: Iterator[object]) -> Iterator[Sequence[str]]:
    taken = 0
    for size in block_sizes(*_STREAM):
        block = checked_prompts("classify_iter", list(islice(prompts, size)), taken)
        if not block:
            return
        yield block
        taken += len(block)
