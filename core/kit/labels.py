"""Label classification: the mathematics, once for all backends, in plain Python.

A label is text that continues the prompt; its score is the joint log-probability of its tokens.
Labels share prefixes, so their tokens form a trie: the model is queried once per inner node
(a *prefix*), and each label's score is the sum along its path. Backends supply the
log-probabilities; everything else happens here.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain

from core.errors import InvalidModelError, LabelError
from core.options import LABEL_PLACE
from core.types import ClassifyResult

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LabelTrie:
    """The token paths of a set of labels, and the nodes whose distributions score them.

    ``paths[i]`` are the tokens of ``labels[i]``. ``prefixes`` are the inner nodes, parents before
    children, ``()`` first; ``children[n]`` are the tokens that may follow ``prefixes[n]``.
    ``shortest`` are the labels that have no other label as a prefix. ``edges[i]`` are the positions
    of label i's tokens among all children, prefix after prefix.
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
    """Return the text of each label after this prompt, including the text between them."""
    return with_lead(label_lead(prompt, prefix), labels)


def label_lead(prompt: str, prefix: str) -> str:
    """Return the text between this prompt and a label: ``prefix``, or nothing.

    Nothing is added to a prompt that ends in white space. A prefix of white space is a word
    boundary, and is omitted where the language or syntax has none (`unspaced`).
    """
    if prompt[-1:].isspace() or (prefix.isspace() and unspaced(prompt)):
        return ""
    return prefix


def with_lead(lead: str, labels: Sequence[str]) -> list[str]:
    """Return the labels after `label_lead`; white space is not added before white space."""
    if lead.isspace():
        return [label if label[:1].isspace() else lead + label for label in labels]
    return [lead + label for label in labels]


def label_sentences(labels: Sequence[str], sentence: str) -> list[str]:
    """Return the sentence of each label: ``sentence`` with the label in place of ``{label}``."""
    return [sentence.replace(LABEL_PLACE, label) for label in labels]


def sentence_result(labels: Sequence[str], scores: Sequence[float]) -> ClassifyResult:
    """Return the result for scores of label sentences; their softmax are the probabilities.

    Raises `InvalidModelError` for NaN and infinity.
    """
    label, probabilities, margin = _chosen(labels, scores, "score")
    return ClassifyResult(label=label, probabilities=probabilities, margin=margin)


def label_paths(
    prompt: Sequence[int],
    continued: Sequence[Sequence[int]],
    encode_alone: Callable[[], Sequence[Sequence[int]]],
) -> tuple[int, list[Path]]:
    """Return the position where the labels begin, and their tokens: ``(anchor, paths)``.

    ``prompt`` are the prompt's tokens and ``continued[i]`` the tokens of prompt and label i
    together. Usually each of them starts with ``prompt``, and ``anchor`` is its length. If a token
    spans the boundary, the labels begin after the tokens that all have in common, so that no token
    pair is scored that the tokenizer would never produce. If they have none in common, there is
    nothing to read a distribution from, and the labels' own tokens (``encode_alone()``) are used.
    """
    anchor = min((common_length(prompt, tokens) for tokens in continued), default=len(prompt))
    if anchor == 0 and prompt:
        return len(prompt), [tuple(tokens) for tokens in encode_alone()]
    return anchor, [tuple(tokens[anchor:]) for tokens in continued]


def build_trie(labels: Sequence[str], paths: Sequence[Path]) -> LabelTrie:
    """Build the trie of the labels' tokens. Raises `LabelError` for no tokens or equal tokens."""
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
    ``trie.children[n][c]`` after ``trie.prefixes[n]``; -infinity for an impossible token. Raises
    `InvalidModelError` for NaN and +infinity.
    """
    if [*map(len, logprobs)] != [*map(len, trie.children)]:
        raise ValueError("logprobs must have one value for each child of each prefix of the trie.")
    return score_edges(trie, [*chain.from_iterable(logprobs)])


def score_edges(trie: LabelTrie, logprobs: Sequence[float]) -> LabelScores:
    """Do `score_labels` with the values of all prefixes in one row, prefix after prefix."""
    if len(trie.prefixes) == 1:  # each label is one token
        scores = [logprobs[edge] for (edge,) in trie.edges]
    else:
        scores = [sum([logprobs[edge] for edge in edges]) for edges in trie.edges]
    label, probabilities, margin = _chosen(trie.labels, scores, "log-probability")
    return LabelScores(
        label=label,
        probabilities=probabilities,
        logprobs=dict(zip(trie.labels, scores, strict=True)),
        label_mass=_mass(trie, scores),
        margin=margin,
    )


def _chosen(
    labels: Sequence[str], scores: Sequence[float], kind: str
) -> tuple[str, dict[str, float], float]:
    """Return the best label, all probabilities, and the lead of the best over the second best.

    Raises `InvalidModelError` for scores, of this ``kind``, that are NaN or infinity.
    """
    if not sum(scores) < math.inf:  # NaN is not less, either
        raise _not_numbers(labels, scores, kind)
    shares = softmax(scores)
    best = scores.index(max(scores))
    second = max(shares[:best] + shares[best + 1 :], default=0.0)  # a single label has none
    return labels[best], dict(zip(labels, shares, strict=True)), shares[best] - second


def with_scores(result: ClassifyResult, scores: LabelScores) -> ClassifyResult:
    """Return the result with its label fields filled in."""
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


def _not_numbers(labels: Sequence[str], scores: Sequence[float], kind: str) -> InvalidModelError:
    label, score = next(pair for pair in zip(labels, scores, strict=True) if not pair[1] < math.inf)
    return InvalidModelError(
        f"The label {label!r} has the {kind} {score}: the model's output for this prompt "
        "is NaN or infinite. Its weights are broken, or overflow the dtype: load it in float32, "
        "or download it again."
    )


def _edges(trie: LabelTrie) -> tuple[Path, ...]:
    """Return the positions of each path's edges among the edges of all nodes, in node order."""
    nodes = zip(trie.prefixes, trie.children, strict=True)
    ends = ((*node, token) for node, tokens in nodes for token in tokens)
    places = {end: place for place, end in enumerate(ends)}
    return tuple(
        tuple(places[path[:end]] for end in range(1, len(path) + 1)) for path in trie.paths
    )


def softmax(scores: Sequence[float]) -> list[float]:
    """Return the softmax of log-probabilities; equal shares if all are -infinity."""
    top = max(scores)
    if top == -math.inf:  # nothing is possible, so nothing is preferred
        return [1.0 / len(scores)] * len(scores)
    weights = [math.exp(score - top) for score in scores]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _mass(trie: LabelTrie, scores: Sequence[float]) -> float:
    """Return the probability that any label follows; a label that extends another adds nothing."""
    return min(1.0, math.fsum([math.exp(scores[label]) for label in trie.shortest]))


def _shortest(paths: Sequence[Path]) -> tuple[int, ...]:
    ends = set(paths)
    return tuple(
        label
        for label, path in enumerate(paths)
        if not any(path[:end] in ends for end in range(1, len(path)))
    )


def common_length(left: Sequence[object], right: Sequence[object]) -> int:
    """Return the length of the common prefix of two sequences."""
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
                f"The labels {owner[path]!r} and {label!r} have the same tokens in this model "
                "and cannot be distinguished. Remove one of them."
            )
        owner[path] = label


def choice_confidence(probabilities: Sequence[float]) -> float:
    """Return the confidence of a choice: ``(max p - 1/n) / (1 - 1/n)``, for n >= 2."""
    chance = 1 / len(probabilities)
    return _within_one((max(probabilities) - chance) / (1 - chance))


def score_confidence(probabilities: Sequence[float]) -> float:
    """Return the confidence of a score: ``max(0, 1 - spread / spread of chance)``, for n >= 2.

    The spread is ``sum(p_i * |i - mode|)``; the spread of chance ``mean(|i - (n - 1) / 2|)``.
    """
    levels = range(len(probabilities))
    mode = max(levels, key=lambda level: probabilities[level])
    spread = math.fsum(p * abs(i - mode) for i, p in enumerate(probabilities))
    middle = (len(probabilities) - 1) / 2
    of_chance = math.fsum(abs(i - middle) for i in levels) / len(probabilities)
    return _within_one(1 - spread / of_chance)


def _within_one(value: float) -> float:
    return min(1.0, max(0.0, value))


# --------------------------------------------------------------------------- the space before

# No space follows text in a script without spaces, an opening mark, or a joining sign; other text
# takes one. Kinds of endings were measured: one takes no space here if two models both give a word
# three times the probability without it. The first character of the word does not matter.

_LOOK = 64  # characters that are examined: an opening tag may be long
_SCRIPT = "text of a script without spaces"

# Ranges, not widths: emoji are as wide as Chinese, and Korean separates words by spaces.
_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff\u1780-\u17ff\u19e0-\u19ff"  # Thai, Lao, Khmer
    "\u2e80-\u3130\u3190-\ua4cf\uf900-\ufaff"  # Chinese, Japanese, Yi, and their punctuation
    "\ufe10-\ufe1f\ufe30-\ufe4f\uff01-\uff9f\uffe0-\uffe6"  # in its forms, full-width and others
    "\U00016fe0-\U00018dff\U0001aff0-\U0001b2ff\U00020000-\U0003ffff"
    "]"
)
_ATTACHED = "\"'`)]}*_,\u2018\u2019\u201c\u201d\u2026\u2013\u2014\u00b7\u2192"
"""Characters that take no space after such text, although they do after a word."""

_OPENING = "<\u00bf\u00a1"  # and Unicode's opening punctuation
_QUOTES = "\"'`\u2018\u201b\u201c\u201f\u00ab\u2039"  # they may close as well
_TAG = re.compile(r"<[^\s<>/=\d][^<>\n]*(?<![/=-])>\Z")
_SIGN = re.compile(
    r"(?:[@\\~]"
    r"|(?<![A-Za-z#])#"  # of a tag: not C#, and not a heading
    r"|(?<!\d)\$"
    r"|(?:(?<=[^\s/])|(?<=:/)|(?<![^\n]))/"  # of a path
    r"|(?<=[^\W_])(?:[_&\u2013-]|--|\u2014\u2014?)"
    r"|(?<=[\w\"')\]])=)\Z"
)
_SIGN_LOOK = 3
_LINE_START = re.compile(r"(?:\A|\n)[ \t]*\Z")


def unspaced(text: str) -> str:
    """Return the kind of ending after which no space follows this text; "" if one follows."""
    last = text[-1:]
    if last.isascii() and (last.isalnum() or last in ":.?!"):  # most prompts
        return ""
    return _ending(text[-_LOOK:])


@lru_cache(maxsize=1024)
def _ending(end: str) -> str:
    end = _visible(end)
    last = end[-1:]
    if not last or last.isspace():
        return ""
    if _UNSPACED.match(last):
        return _SCRIPT
    if last in _QUOTES and _quote_opens(end, last):
        return "an opening quote"
    if last in "*_" and _emphasis_opens(end, last):
        return f"an opening {last}"
    if last in _OPENING or unicodedata.category(last) == "Ps":
        return f"an opening {last}"
    if last == ">" and _TAG.search(end):
        return "an opening tag"
    if sign := _SIGN.search(end[-_SIGN_LOOK:]):
        return repr(sign[0])
    if last in _ATTACHED and _UNSPACED.match(_visible(end.rstrip(_ATTACHED))[-1:]):
        return _SCRIPT
    return ""


def _visible(end: str) -> str:
    """Return the text without marks and format characters at its end that belong to what they
    follow.
    """
    while unicodedata.category(end[-1:] or "a") in ("Mn", "Me", "Cf"):
        if _UNSPACED.match(end[-1]):
            break
        end = end[:-1]
    return end


def _quote_opens(end: str, quote: str) -> bool:
    before = end.rstrip(quote).rstrip("\\")  # \" is a quote within a quote
    if before and before[-1] in ":=,;|>":  # {"topic":" opens, "Topic:" closes
        return not re.search(rf"{quote}\w[^{quote}\n]*\Z", before)
    return _starts(before)


def _emphasis_opens(end: str, mark: str) -> bool:
    before = end.rstrip(mark)
    if mark == "_":  # more of them are a blank to be filled in
        return len(end) == len(before) + 1 and _starts(before)
    bullet = len(end) == len(before) + 1 and _LINE_START.search(before)
    return not bullet and _starts(before)


def _starts(before: str) -> bool:
    """Return whether a word may start after this text without a space."""
    last = before[-1:]
    return not last or last.isspace() or _ending(before) not in ("", _SCRIPT)
