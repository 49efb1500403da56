"""The two ways into `Classifier`: a list of prompts, and a stream of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice

from core.clock import RequestClock
from core.errors import CoreError
from core.options import GenerateConfig
from core.serving.owner import OwnerThread
from core.serving.reading import Row, classify_rows
from core.support import checked_prompts
from core.types import ClassifyResult
from core_mlx_native.classify import Classifier
from core_mlx_native.loader import LoadedModel
from core_mlx_native.threads import begin

_FIRST_BLOCK, _BLOCK = 64, 1024  # of a stream: the first answers come early, the others share more
_LIST_BLOCK = 8192  # of a list

Tokenised = tuple[list[Row], dict[int, CoreError]]


class Classification:
    """One call, over however many prompts; ``prompts`` and ``read`` count those, and sound ones."""

    def __init__(
        self, model: LoadedModel, owner: OwnerThread, config: GenerateConfig, clock: RequestClock
    ) -> None:
        self._model, self._config = model, config
        self.classifier = Classifier(model, owner, config, clock)
        self.prompt_tokens = self.read = 0

    def classify(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        """One result per prompt, in order. Raises `LabelError`."""
        starts = range(0, len(prompts), _LIST_BLOCK)
        return list(self._in_blocks(prompts[start : start + _LIST_BLOCK] for start in starts))

    def classify_iter(self, prompts: Iterable[object]) -> Iterator[ClassifyResult]:
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
        for row, result in self.classifier.results(rows):
            found[row.index] = result
            if result.error is None:
                self.prompt_tokens += len(row.ids)
                self.read += 1
        return [found[index] for index in range(count)]


def _blocks(prompts: Iterator[object]) -> Iterator[list[str]]:
    size, taken = _FIRST_BLOCK, 0
    while block := checked_prompts("classify_iter", list(islice(prompts, size)), taken):
        yield block
        size, taken = min(2 * size, _BLOCK), taken + len(block)
