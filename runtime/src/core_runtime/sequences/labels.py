"""``classify``: from prompts to results, many prompts in one batch.

Label probabilities are read at the inner nodes of the labels' trie, which run after the prompt's
sequence: at all of them, or in rounds at those that the best label needs.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Protocol

from core.kit.labels import LabelTrie, score_labels, with_scores
from core.options import GenerateConfig
from core.types import ClassifyResult, Token
from core_runtime.label_search import LabelSearch, SearchTree, search_tree
from core_runtime.request import own_error, seeded
from core_runtime.rows import PromptRow, labels_alone, of_labels
from core_runtime.sequences.passes import Branch
from core_runtime.sequences.sampling import Sampler, check_logits, log_total, logprob
from core_runtime.sequences.session import Logits

TokenText = Callable[[int], str]
_FEW_NODES = 12  # up to this many are read at once: further rounds rerun shared parts of branches


class Labels(Protocol):
    """The labels of one prompt while the inner nodes of their trie are read."""

    tree: SearchTree

    def wanted(self, most: int) -> Sequence[int]:
        """Return the nodes to read next; about ``most`` suffice. Empty at the end."""
        ...

    def read(self, node: int, logprobs: Sequence[float]) -> None:
        """Take the log-probabilities of a node's children."""
        ...

    def of(self, result: ClassifyResult) -> ClassifyResult:
        """Return the result with the labels' probabilities."""
        ...


class AllLabels:
    """Labels that all get a score (`Labels`); ``alone``: nothing else is requested."""

    def __init__(self, tree: SearchTree, alone: bool) -> None:
        self.tree, self._alone = tree, alone
        self._unread: Sequence[int] = range(1, len(tree.children))
        self._logprobs: dict[int, Sequence[float]] = {}

    def wanted(self, most: int) -> Sequence[int]:
        """See `Labels`: all nodes, once."""
        wanted, self._unread = self._unread, ()
        return wanted

    def read(self, node: int, logprobs: Sequence[float]) -> None:
        """See `Labels`."""
        self._logprobs[node] = logprobs

    def of(self, result: ClassifyResult) -> ClassifyResult:
        """See `Labels`."""
        values = [self._logprobs[node] for node in range(len(self.tree.children))]
        scored = with_scores(result, score_labels(self.tree.trie, values))
        return of_labels(scored, self.tree.trie) if self._alone else scored


class BestLabel(LabelSearch):
    """Labels of which only the best is requested (`Labels`)."""

    def of(self, result: ClassifyResult) -> ClassifyResult:
        """See `Labels`."""
        return ClassifyResult(label=self.label)


def labels_of(trie: LabelTrie, config: GenerateConfig) -> Labels:
    """Return the reader of the labels that the options require."""
    alone, tree = labels_alone(config), search_tree(trie)
    searches = alone and len(trie.prefixes) > _FEW_NODES
    return BestLabel(tree) if searches else AllLabels(tree, alone)


def chains(tree: SearchTree, nodes: Sequence[int]) -> list[tuple[list[int], int]]:
    """Return the longest paths to some of the nodes, each with the number of last nodes to read.

    Nodes that an earlier path has too, or that were read before, are computed again but not read.
    """
    inner = {tree.parents[node] for node in nodes}
    unread = set(nodes)
    paths: list[tuple[list[int], int]] = []
    for node in nodes:
        if node not in inner:
            path = tree.path(node)
            own = unread.intersection(path)
            paths.append((path, len(own)))
            unread -= own
    return paths


class ClassifyQuestion:
    """The `questions.RowQuestion` of one prompt, with the values read so far.

    ``config`` are the options of the call, which may have no seed.
    """

    reads = 1

    def __init__(self, row: PromptRow, config: GenerateConfig, token_text: TokenText) -> None:
        self.row, self._config, self._token_text = row, seeded(config), token_text
        self.ids = row.ids[: row.anchor]
        self.shareable = len(self.ids) - 1
        alone = labels_alone(config)
        self._tail = () if alone else tuple(row.ids[row.anchor :])
        self._unanswered = not alone
        self._labels = labels_of(row.question.trie, config) if row.question else None
        self.error: Exception | None = None
        self._result = ClassifyResult()

    @property
    def longest(self) -> int:
        """See `LogitsQuestion`."""
        prefixes = self.row.question.trie.prefixes if self.row.question else ()
        return max(len(self._tail), *map(len, prefixes), 0)

    def read(self, place: int, logits: Logits) -> None:
        """Take the logits that precede the labels, usually those at the prompt's end."""
        self._read_node(0, logits)
        if self._unanswered and not self._tail:
            self._answer(logits)

    def branches(self, most: int) -> list[Branch]:
        """Return the branches of the labels' inner nodes.

        If labels begin before the prompt's last tokens, these are a branch, too.
        """
        branches = []
        if self._tail and self._unanswered:
            branches.append(Branch(self._tail, 1, lambda place, logits: self._answer(logits)))
        if self._labels is not None:
            tree = self._labels.tree
            for path, reads in chains(tree, self._labels.wanted(most)):
                branches.append(Branch(tree.trie.prefixes[path[-1]], reads, self._reader(path)))
        return branches

    def fail(self, error: Exception) -> None:
        """Record the error of a prompt that could not be computed; the first one counts."""
        self.error = self.error or own_error(error)

    def result(self) -> ClassifyResult:
        """Return the prompt's result, or the error that ended it."""
        if self.error is not None:
            return ClassifyResult(error=self.error)
        return self._result if self._labels is None else self._labels.of(self._result)

    def _answer(self, logits: Logits) -> None:
        config, self._unanswered = self._config, False
        token = Sampler(config, self.row.ids).draw(logits, 0)
        chance = logprob(logits, token) if config.return_logprobs else None
        self._result = ClassifyResult(
            token=Token(token, self._token_text(token), chance),
            logits=array("f", logits.tobytes()) if config.return_logits else None,
        )

    def _reader(self, path: Sequence[int]) -> Callable[[int, Logits], None]:
        return lambda place, logits: self._read_node(path[place], logits)

    def _read_node(self, node: int, logits: Logits) -> None:
        if self._labels is not None:
            check_logits(logits)
            children = logits[list(self._labels.tree.trie.children[node])].astype(float)
            self._labels.read(node, (children - log_total(logits)).tolist())
