"""Label classification: the mathematics, once for all backends, in plain Python.

A label is text that continues the prompt; its score is the joint log-probability of its tokens.
Labels share beginnings, so their tokens form a trie: the model is asked once per inner node
(a *prefix*), and each label's score is the sum along its path. Backends supply the
log-probabilities; everything else happens here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from core.errors import InvalidModelError, LabelError
from core.joining import unspaced
from core.types import ClassifyResult

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LabelTrie:
    """The token paths of a set of labels, and the questions that score them.

    ``paths[i]`` are the tokens of ``labels[i]``. ``prefixes`` are the inner nodes, parents before
    children, ``()`` first; ``children[n]`` are the tokens that may follow ``prefixes[n]``.
    ``shortest`` are the labels that no other one is the beginning of. ``edges[i]`` are the places
    of label i's tokens among all children, those of one prefix behind another's.
    """

    labels: tuple[str, ...]
    paths: tuple[Path, ...]
    prefixes: tuple[Path, ...]
    children: tuple[tuple[int, ...], ...]
    shortest: tuple[int, ...]
    edges: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", _edges(self))


@dataclass(frozen=True, slots=True)
class LabelScores:
    """The scores of the labels after one prompt; see `core.ClassifyResult` for the fields."""

    label: str
    probabilities: dict[str, float]
    logprobs: dict[str, float]
    label_mass: float
    margin: float


def label_texts(prompt: str, labels: Sequence[str], prefix: str) -> list[str]:
    """Return the text of each label after this prompt, with what is written between them."""
    return with_lead(label_lead(prompt, prefix), labels)


def label_lead(prompt: str, prefix: str) -> str:
    """Return what is written between this prompt and a label: ``prefix``, or nothing.

    A prompt that ends in white space takes nothing. A prefix of white space stands for the border
    between two words, and is left out where none is written (`core.joining.unspaced`).
    """
    if prompt[-1:].isspace() or (prefix.isspace() and unspaced(prompt)):
        return ""
    return prefix


def with_lead(lead: str, labels: Sequence[str]) -> list[str]:
    """Return the labels after `label_lead`; one that begins with white space takes no other."""
    if lead.isspace():
        return [label if label[:1].isspace() else lead + label for label in labels]
    return [lead + label for label in labels]


def label_paths(
    prompt: Sequence[int],
    continued: Sequence[Sequence[int]],
    encode_alone: Callable[[], Sequence[Sequence[int]]],
) -> tuple[int, list[Path]]:
    """Find the place where the labels begin, and their tokens: ``(anchor, paths)``.

    ``prompt`` are the prompt's tokens and ``continued[i]`` those of prompt and label i together.
    Usually each of them starts with ``prompt`` and ``anchor`` is its length. Where a token spans
    the border, the labels begin at the last token that all agree on, so that no token pair is
    scored which the tokenizer would never produce. If they agree on none, there is nothing to
    read a distribution from, and the labels' own tokens (``encode_alone()``) are used.
    """
    anchor = min((common_length(prompt, tokens) for tokens in continued), default=len(prompt))
    if anchor == 0 and prompt:
        return len(prompt), [tuple(tokens) for tokens in encode_alone()]
    return anchor, [tuple(tokens[anchor:]) for tokens in continued]


def build_trie(labels: Sequence[str], paths: Sequence[Path]) -> LabelTrie:
    """Arrange the labels' token paths. Raises `LabelError` for no tokens or for equal tokens."""
    _refuse_indistinct(labels, paths)
    followers: dict[Path, dict[int, None]] = {(): {}}  # a dict for its order
    for path in sorted(paths):
        for end, token in enumerate(path):
            followers.setdefault(path[:end], {})[token] = None
    children = tuple(tuple(tokens) for tokens in followers.values())
    return LabelTrie(tuple(labels), tuple(paths), tuple(followers), children, _shortest(paths))


def score_labels(trie: LabelTrie, logprobs: Sequence[Sequence[float]]) -> LabelScores:
    """Score every label.

    ``logprobs[n][c]`` is the natural-log probability, over the full vocabulary, of
    ``trie.children[n][c]`` after ``trie.prefixes[n]``; -infinity for what is impossible. Raises
    `InvalidModelError` for NaN and +infinity.
    """
    if [*map(len, logprobs)] != [*map(len, trie.children)]:
        raise ValueError("The trie asks for one value for each child of each prefix.")
    return score_edges(trie, [*chain.from_iterable(logprobs)])


def score_edges(trie: LabelTrie, logprobs: Sequence[float]) -> LabelScores:
    """`score_labels` where the values of one prefix stand behind those of another in one row."""
    if len(trie.prefixes) == 1:  # each label is one token
        scores = [logprobs[edge] for (edge,) in trie.edges]
    else:
        scores = [sum([logprobs[edge] for edge in edges]) for edges in trie.edges]
    if not sum(scores) < math.inf:  # NaN is not less, either
        raise _not_numbers(trie.labels, scores)
    probabilities = softmax(scores)

    # The margin is that over the second best; a label alone has nothing behind it.
    best = scores.index(max(scores))
    second = max(probabilities[:best] + probabilities[best + 1 :], default=0.0)

    return LabelScores(
        label=trie.labels[best],
        probabilities=dict(zip(trie.labels, probabilities, strict=True)),
        logprobs=dict(zip(trie.labels, scores, strict=True)),
        label_mass=_mass(trie, scores),
        margin=probabilities[best] - second,
    )


def with_scores(result: ClassifyResult, scores: LabelScores) -> ClassifyResult:
    """The result with its label fields filled in."""
    return ClassifyResult(  # `replace` takes three times as long, once for each row
        result.token,
        result.logits,
        scores.label,
        scores.probabilities,
        scores.logprobs,
        scores.label_mass,
        scores.margin,
        result.error,
    )


def _not_numbers(labels: Sequence[str], scores: Sequence[float]) -> InvalidModelError:
    label, score = next(pair for pair in zip(labels, scores, strict=True) if not pair[1] < math.inf)
    return InvalidModelError(
        f"The label {label!r} has the log-probability {score}: the model's logits for this prompt "
        "are NaN or infinite. Its weights are broken, or overflow the dtype: load it in float32, "
        "or download it again."
    )


def _edges(trie: LabelTrie) -> tuple[Path, ...]:
    """The places of each path's edges among those of all nodes, in the order of the nodes."""
    nodes = zip(trie.prefixes, trie.children, strict=True)
    ends = ((*node, token) for node, tokens in nodes for token in tokens)
    places = {end: place for place, end in enumerate(ends)}
    return tuple(
        tuple(places[path[:end]] for end in range(1, len(path) + 1)) for path in trie.paths
    )


def softmax(scores: Sequence[float]) -> list[float]:
    """The share of each among all, from log-probabilities; equal ones where none is possible."""
    top = max(scores)
    if top == -math.inf:  # nothing is possible, so nothing is preferred
        return [1.0 / len(scores)] * len(scores)
    weights = [math.exp(score - top) for score in scores]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _mass(trie: LabelTrie, scores: Sequence[float]) -> float:
    """Probability that the text goes on with any label; one that extends another adds nothing."""
    return min(1.0, math.fsum([math.exp(scores[label]) for label in trie.shortest]))


def _shortest(paths: Sequence[Path]) -> tuple[int, ...]:
    ends = set(paths)
    return tuple(
        label
        for label, path in enumerate(paths)
        if not any(path[:end] in ends for end in range(1, len(path)))
    )


def common_length(left: Sequence[object], right: Sequence[object]) -> int:
    """The number of items that two sequences have in common at their beginning."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right))


def _refuse_indistinct(labels: Sequence[str], paths: Sequence[Path]) -> None:
    owner: dict[Path, str] = {}
    for label, path in zip(labels, paths, strict=True):
        if not path:
            raise LabelError(f"The label {label!r} adds no token to its prompt. Remove it.")
        if path in owner:
            raise LabelError(
                f"The labels {owner[path]!r} and {label!r} have the same tokens for this model "
                "and cannot be told apart. Keep one of them."
            )
        owner[path] = label
