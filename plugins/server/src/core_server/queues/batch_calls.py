"""Calls that the queue makes to a model, over many rows; equal calls share a round.

A call is a value: the rows of two equal calls may run together.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from core.errors import UnsupportedOperationError
from core.extensions import HiddenStates, Tokenizing, TokenPrompts
from core.options import LABEL_SENTENCE, CancelToken, GenerateConfig
from core.protocols import TextModel
from core.types import ClassifyResult, HiddenResult, Score, Token

Row = TypeVar("Row", contravariant=True)
Result = TypeVar("Result", covariant=True)
Pair = tuple[Sequence[int], Sequence[int]]
"""The ids of a prompt, and the ids of a continuation."""


class BatchCall(Protocol[Row, Result]):
    """A call with one result for each row, in order; ``most`` rows at once.

    Hashable, and equal by value.
    """

    @property
    def most(self) -> int:
        """Rows of a round: about a second of a small model on two cores."""
        ...

    def __call__(
        self, model: TextModel, rows: Sequence[Row], cancel: CancelToken
    ) -> Sequence[Result]:
        """Run the model on these rows."""
        ...


@dataclass(frozen=True, slots=True)
class LabelCall:
    """A call for the label that continues each prompt, or whose sentence is most like it."""

    labels: tuple[str, ...]
    label_sentence: str = LABEL_SENTENCE
    most: int = 256

    def __call__(
        self, model: TextModel, rows: Sequence[str], cancel: CancelToken
    ) -> list[ClassifyResult]:
        """Return the results of ``classify``."""
        config = GenerateConfig(
            labels=self.labels, label_sentence=self.label_sentence, cancel=cancel
        )
        return model.classify(rows, config)


@dataclass(frozen=True, slots=True)
class StateCall:
    """A call for the last layer's hidden state of each text: its embedding."""

    most: int = 256

    def __call__(
        self, model: TextModel, rows: Sequence[str], cancel: CancelToken
    ) -> list[HiddenResult]:
        """Return the results of ``hidden_states``."""
        if not isinstance(model, HiddenStates):
            raise UnsupportedOperationError("embeddings", model.model_type, ())
        return model.hidden_states(rows, GenerateConfig(cancel=cancel))


@dataclass(frozen=True, slots=True)
class ScoreCall:
    """A call for the log-probability of ids after other ids."""

    most: int = 256

    def __call__(self, model: TextModel, rows: Sequence[Pair], cancel: CancelToken) -> list[Score]:
        """Return the results of ``score_tokens``."""
        if not isinstance(model, TokenPrompts):
            raise UnsupportedOperationError("scores of token ids", model.model_type, ())
        prompts, continuations = zip(*rows, strict=True)
        return model.score_tokens(prompts, continuations, GenerateConfig(cancel=cancel))


@dataclass(frozen=True, slots=True)
class LikeliestCall:
    """A call for the ``count`` likeliest next tokens, the best first."""

    count: int
    most: int = 16  # each row has the logits of a whole vocabulary

    def __call__(
        self, model: TextModel, rows: Sequence[str], cancel: CancelToken
    ) -> list[tuple[Token, ...]]:
        """Return the tokens of the highest logits of ``classify``. Raises a row's error."""
        if not isinstance(model, Tokenizing):
            raise UnsupportedOperationError("the text of a token", model.model_type, ())
        config = GenerateConfig(return_logits=True, cancel=cancel)
        results = model.classify(rows, config)
        return [self._best(model, result.raise_for_error()) for result in results]

    def _best(self, model: Tokenizing, result: ClassifyResult) -> tuple[Token, ...]:
        logits = result.logits or ()
        best = heapq.nlargest(self.count, range(len(logits)), key=logits.__getitem__)
        highest = logits[best[0]]
        total = highest + math.log(math.fsum(math.exp(logit - highest) for logit in logits))
        return tuple(Token(id, model.decode([id]), logits[id] - total) for id in best)
