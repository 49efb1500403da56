"""Answers, labels and errors that a test sets for the fake, by prompt."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from core.kit.labels import LabelScores, LabelTrie, build_trie, score_labels, unspaced

Answers: TypeAlias = str | Mapping[str, str] | Sequence[str] | Callable[[str], str]
"""One text for all prompts, one for each prompt, one after another, or a function of the prompt."""

Labelling: TypeAlias = str | Mapping[str, float]
"""A label, which then has the probability 1, or probabilities of labels: 0 for omitted ones."""

Labels: TypeAlias = Mapping[str, Labelling] | Callable[[str, Sequence[str]], Labelling]
"""The label of each prompt, or a function of the prompt and the labels."""

Errors: TypeAlias = Mapping[str, Exception] | Callable[[str], Exception | None]
"""The error of each prompt, or a function of the prompt."""

_UNUSUAL = 0.1  # without the space that is usual there, each label is this much less likely


class Script:
    """Answers of a test. Safe to use from any thread. A missing one is an AssertionError."""

    def __init__(self, answers: Answers, labels: Labels | None, errors: Errors | None) -> None:
        self._labels, self._errors = labels, errors
        self._queue: deque[str] | None = None
        self._lock = threading.Lock()  # of the queue; never held while a test's function runs
        self._known = answers if isinstance(answers, Mapping) else None

        # The answer to a prompt that comes next; "" without one.
        self._foreseen: Callable[[str], str]
        if isinstance(answers, str):
            self._foreseen = lambda prompt: answers
        elif isinstance(answers, Mapping):
            self._foreseen = lambda prompt: answers.get(prompt, "")
        elif isinstance(answers, Sequence):
            self._queue = deque(answers)
            self._foreseen = lambda prompt: self._first()
        elif callable(answers):
            self._foreseen = answers
        else:
            raise TypeError(
                "answers must be a string, a mapping from prompt to string, a sequence of strings, "
                f"or a function, not a {type(answers).__name__}."
            )

    def check(self, prompt: str) -> None:
        """Raise the error that is set for a prompt."""
        errors = self._errors
        if errors is None:
            return
        error = errors.get(prompt) if isinstance(errors, Mapping) else errors(prompt)
        if error is not None:
            raise error

    def answer(self, prompt: str) -> str:
        """Return the text of a generation; of a sequence of answers, the next one."""
        if self._known is not None and prompt not in self._known:
            raise AssertionError(
                f"FakeModel has no answer for {prompt!r:.200}. It has answers for: "
                f"{', '.join(map(repr, self._known)) or 'nothing'}."
            )

        if self._queue is None:
            return self.foreseen(prompt)
        with self._lock:
            if not self._queue:
                raise AssertionError(f"FakeModel has no answer left for {prompt!r:.200}.")
            return _string(prompt, self._queue.popleft())

    def foreseen(self, prompt: str) -> str:
        """Return the answer of the next generation without using it up; empty without one."""
        return _string(prompt, self._foreseen(prompt))

    def _first(self) -> str:
        with self._lock:
            return self._queue[0] if self._queue else ""

    def scores(
        self, prompt: str, question: str, labels: Sequence[str], texts: Sequence[str]
    ) -> LabelScores:
        """Return the labels' scores. ``texts`` are the labels with the text before them."""
        key = tuple(labels), tuple(texts)
        spaced = prompt[-1:].isspace() or bool(unspaced(prompt))  # no space is usual there
        names = _names(*key, spaced)
        shares = self.shares(question, list(names))
        scores = _scored(*key, spaced, tuple([shares.get(name, 0.0) for name in names]))
        return replace(  # each row's own
            scores, probabilities=dict(scores.probabilities), logprobs=dict(scores.logprobs)
        )

    def shares(self, question: str, names: Sequence[str]) -> Mapping[str, float]:
        """Return the probabilities that the test sets for labels; an omitted one has 0."""
        labels = self._labels
        if isinstance(labels, Mapping) and question not in labels:
            raise AssertionError(
                f"FakeModel has no label for {question!r:.200}. It has labels for: "
                f"{', '.join(map(repr, labels)) or 'nothing'}."
            )
        assert labels is not None  # without them, the capability is not declared
        label = labels[question] if isinstance(labels, Mapping) else labels(question, names)

        if isinstance(label, str):
            if label not in names:
                raise AssertionError(
                    f"FakeModel labels {question!r:.200} as {label!r}, which is not one of {names}."
                )
            return {label: 1.0}
        shares = label.values()
        if not (min(shares, default=0.0) >= 0.0 and math.fsum(shares) <= 1.0 + 1e-6):  # or NaN
            raise AssertionError(
                f"FakeModel's probabilities for {question!r:.200} are invalid: {label!r}."
            )
        return label


@lru_cache(maxsize=64)
def _names(labels: tuple[str, ...], texts: tuple[str, ...], spaced: bool) -> tuple[str, ...]:
    """Return the names that a test uses for the labels: without the blank of the usual prefix."""
    return tuple(
        label if spaced or label != text else _without_blank(label)
        for label, text in zip(labels, texts, strict=True)
    )


@lru_cache(maxsize=64)  # of thousands of rows, few have likelihoods of their own
def _scored(
    labels: tuple[str, ...], texts: tuple[str, ...], spaced: bool, likely: tuple[float, ...]
) -> LabelScores:
    usual = [spaced or text[:1].isspace() for text in texts]
    shares = [p * (1.0 if plain else _UNUSUAL) for p, plain in zip(likely, usual, strict=True)]
    logprobs = [math.log(share) if share else -math.inf for share in shares]
    return score_labels(_trie(labels, texts), [logprobs])


@lru_cache(maxsize=64)  # most of a row's time, where thousands have the same labels
def _trie(labels: tuple[str, ...], texts: tuple[str, ...]) -> LabelTrie:
    """Return a trie with one token per label, so that a longer one may outweigh its prefix."""
    by_text = build_trie(labels, [tuple(map(ord, text)) for text in texts])
    tokens = tuple(range(len(labels)))
    return replace(by_text, paths=tuple((i,) for i in tokens), prefixes=((),), children=(tokens,))


def _without_blank(label: str) -> str:
    """Return a label without its own leading blank, which is usually in ``label_prefix``."""
    return label[1:] if label[:1].isspace() and not label.isspace() else label


def _string(prompt: str, answer: object) -> str:
    if not isinstance(answer, str):
        kind = type(answer).__name__
        raise TypeError(f"The answer to {prompt!r:.200} is a {kind}, not a string.")
    return answer
