"""``classify``: from prompts to results, many prompts in one batch.

Whatever goes wrong with one prompt becomes that row's ``error``; the other rows finish. Prompts
with a common beginning share it in the cache.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from core.clock import RequestClock
from core.labels import Path, with_scores
from core.options import GenerateConfig
from core.serving.failures import own_error
from core.serving.prefixes import grouped
from core.serving.reading import Row, labels_alone, of_labels
from core.serving.request import seeded
from core.types import ClassifyResult, Token
from core_llama_cpp.label_reader import LabelReader, chains
from core_llama_cpp.passes import Passes, ask
from core_llama_cpp.questions import Branch
from core_llama_cpp.sampling import Sampler, logprob
from core_llama_cpp.session import Logits

TokenText = Callable[[int], str]


class Asked:
    """One prompt, and what was read of it: a `core_llama_cpp.questions.Question`."""

    reads = 1

    def __init__(self, row: Row, config: GenerateConfig, token_text: TokenText) -> None:
        self.row, self._config, self._token_text = row, config, token_text
        anchor = row.question.anchor if row.question else len(row.ids)
        self.ids = row.ids[:anchor]
        self._tail = tuple(row.ids[anchor:])
        self._labels = LabelReader(row.question.trie) if row.question else None
        self.error: Exception | None = None
        self._result = ClassifyResult()

    def read(self, place: int, logits: Logits) -> None:
        """At the end of what stands before the labels: mostly the prompt's end."""
        if self._labels is not None:
            self._labels.read((), logits)
        if not self._tail:
            self._answer(logits)

    def branches(self) -> list[Branch]:
        """The labels' inner nodes; and the prompt's last tokens where labels begin before them."""
        found = []
        if self._tail:
            found.append(Branch(self._tail, 1, lambda place, logits: self._answer(logits)))
        if self.row.question is not None:
            for path, reads in chains(self.row.question.trie):
                found.append(Branch(path, reads, self._node_reader(path)))
        return found

    def fail(self, error: Exception) -> None:
        """It could not be computed; the first error counts."""
        self.error = self.error or own_error(error)

    def result(self) -> ClassifyResult:
        """What came of it."""
        if self.error is not None:
            return ClassifyResult(error=self.error)
        if self._labels is None:
            return self._result
        found = with_scores(self._result, self._labels.scores())
        return of_labels(found) if labels_alone(self._config) else found

    def _answer(self, logits: Logits) -> None:
        config = self._config
        if labels_alone(config):
            return
        token = Sampler(config, self.row.ids).draw(logits, 0)
        chance = logprob(logits, token) if config.return_logprobs else None
        self._result = ClassifyResult(
            token=Token(token, self._token_text(token), chance),
            logits=array("f", logits.tobytes()) if config.return_logits else None,
        )

    def _node_reader(self, path: Path) -> Callable[[int, Logits], None]:
        def read(place: int, logits: Logits) -> None:
            if self._labels is not None:
                self._labels.read(path[: place + 1], logits)

        return read


class Classifier:
    """One call: a `core.serving.classifying.Classifier`."""

    def __init__(
        self, passes: Passes, token_text: TokenText, config: GenerateConfig, clock: RequestClock
    ) -> None:
        self._passes, self._token_text = passes, token_text
        self._config, self._clock = config, clock
        self.reused = 0

    def results(self, blocks: Iterable[Sequence[Row]]) -> Iterator[tuple[Row, ClassifyResult]]:
        """Each row's result, those first that begin alike."""
        for rows in blocks:
            asked = [Asked(row, seeded(self._config), self._token_text) for row in rows]
            most = [len(question.ids) - 1 for question in asked]
            with self._passes as passes:
                for prefix, group in grouped(asked, [question.ids for question in asked], most):
                    self.reused += ask(passes, prefix, group, self._clock).cached
                    yield from ((question.row, question.result()) for question in group)
