"""``classify``: from prompts to results, many prompts in one batch.

Label probabilities are read off the labels' inner trie nodes, which run behind the prompt's
sequence.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from core.clock import RequestClock
from core.labels import LabelScores, LabelTrie, Path, score_labels, with_scores
from core.options import GenerateConfig
from core.types import ClassifyResult, Token
from core_llama_cpp.classify.passes import Branch, Passes, ask
from core_llama_cpp.context.session import Logits
from core_llama_cpp.sampling import Sampler, check_logits, log_total, logprob
from core_runtime.batches import by_prefix
from core_runtime.request import own_error, seeded
from core_runtime.rows import Row, labels_alone, of_labels

TokenText = Callable[[int], str]


class LabelReader:
    """The log-probabilities of one prompt's labels, as they are read."""

    def __init__(self, trie: LabelTrie) -> None:
        self._trie = trie
        self._children = dict(zip(trie.prefixes, trie.children, strict=True))
        self._found: dict[Path, list[float]] = {}

    def read(self, node: Path, logits: Logits) -> None:
        """Take the logits after an inner node; ``()`` is the prompt's end.

        Raises `core.InvalidModelError` for what is no distribution.
        """
        check_logits(logits)
        children = logits[list(self._children[node])].astype(float)
        self._found[node] = (children - log_total(logits)).tolist()

    def scores(self) -> LabelScores:
        """The scores of the labels, once every inner node was read."""
        return score_labels(self._trie, [self._found[node] for node in self._trie.prefixes])


def chains(trie: LabelTrie) -> list[tuple[Path, int]]:
    """The longest paths of inner nodes, and how many nodes at the end of each are its own.

    Nodes that an earlier chain has too are run again, and read there only.
    """
    inner = set(trie.prefixes)
    ends = [path for path in trie.prefixes if path and not _goes_on(path, trie, inner)]
    read: set[Path] = set()
    found = []
    for path in ends:
        nodes = {path[:end] for end in range(1, len(path) + 1)}
        found.append((path, len(nodes - read)))
        read |= nodes
    return found


def _goes_on(path: Path, trie: LabelTrie, inner: set[Path]) -> bool:
    children: Sequence[int] = trie.children[trie.prefixes.index(path)]
    return any((*path, token) in inner for token in children)


class LabelQuestionReader:
    """A `Question` about one prompt, with the values read so far."""

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
        """Take the logits in front of the labels: mostly those at the prompt's end."""
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
        """Keep the error of a prompt that could not be computed; the first one counts."""
        self.error = self.error or own_error(error)

    def result(self) -> ClassifyResult:
        """The prompt's result, or the error that ended it."""
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
    """The `core_runtime.classifying.Classifier` of one call."""

    def __init__(
        self, passes: Passes, token_text: TokenText, config: GenerateConfig, clock: RequestClock
    ) -> None:
        self._passes, self._token_text = passes, token_text
        self._config, self._clock = config, clock
        self.reused = 0

    def results(self, blocks: Iterable[Sequence[Row]]) -> Iterator[tuple[Row, ClassifyResult]]:
        """Yield each row with its result; rows that begin alike come together."""
        for rows in blocks:
            asked = [
                LabelQuestionReader(row, seeded(self._config), self._token_text) for row in rows
            ]
            most = [len(question.ids) - 1 for question in asked]
            with self._passes as passes:
                for prefix, group in by_prefix(asked, [question.ids for question in asked], most):
                    self.reused += ask(passes, prefix, group, self._clock).cached
                    yield from ((question.row, question.result()) for question in group)
