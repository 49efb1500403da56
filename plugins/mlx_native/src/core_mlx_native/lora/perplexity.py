"""The loss of evaluation examples, per token that training would learn, in nats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from core.training import TrainConfig, TrainingExample
from core_mlx_native.train.rows import TokenRow

if TYPE_CHECKING:
    from core_mlx_native.model import MlxModel


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """The mean loss over ``tokens`` learned tokens."""

    loss: float
    tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics, for JSON; ``perplexity`` is ``exp(loss)``."""
        return {"loss": self.loss, "perplexity": math.exp(self.loss), "tokens": self.tokens}

    def lines(self, name: str) -> list[str]:
        """Return the metrics as a text line."""
        values = f"loss {self.loss:.4f}, perplexity {math.exp(self.loss):.3f}"
        return [f"{name}: {values}, over {self.tokens} tokens"]


def token_loss(
    model: MlxModel, examples: Sequence[TrainingExample], config: TrainConfig
) -> TokenLoss:
    """Score the tokens that training would learn from examples. Raises like training."""
    pairs = [pair for row in model.training_rows(examples, config) for pair in _pairs(row)]
    scores = model.score_tokens([head for head, _ in pairs], [tail for _, tail in pairs])
    for score in scores:
        if score.error is not None:
            raise score.error
    tokens = sum(len(tail) for _, tail in pairs)
    return TokenLoss(-math.fsum(score.logprob for score in scores) / tokens, tokens)


def _pairs(row: TokenRow) -> Iterator[tuple[list[int], list[int]]]:
    """Yield each run of learned tokens with all tokens before it."""
    for _, run in groupby(enumerate(row.learned), key=lambda item: item[1] - item[0]):
        places = [place for _, place in run]
        yield [*row.ids[: places[0]]], [row.ids[place] for place in places]
