"""mlx-lm's sampler and penalty for the options of a request, clamped to valid ranges.

Each clamp is exact: it changes no draw.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from core_mlx_lm_bridge.protocol import GenerationOptions

_COLD = 1e-10  # below it, different float32 logits are too far apart for a draw to reach the lower
_LEAST_TOP_P = 1e-9  # the best token of any vocabulary is likelier
_STRONGEST = 1e30  # penalties beyond it, or below its inverse, overflow float32
_ALL = 2**31 - 1


def sampler(sample_utils: Any, options: GenerationOptions, vocab_size: int) -> Any:
    """Return mlx-lm's sampler, in its order: top_p, min_p, top_k, temperature."""
    cold = options.temperature < _COLD
    return sample_utils.make_sampler(
        temp=0.0 if cold else options.temperature,
        top_p=max(options.top_p, _LEAST_TOP_P),
        min_p=options.min_p,
        top_k=options.top_k if options.top_k < vocab_size else 0,
    )


def penalties(sample_utils: Any, options: GenerationOptions) -> list[Any]:
    """Return the repeat penalty over all tokens of prompt and output.

    mlx-lm's default is the last 20.
    """
    if options.repeat_penalty == 1.0:
        return []
    strength = min(max(options.repeat_penalty, 1 / _STRONGEST), _STRONGEST)
    processors: list[Any] = sample_utils.make_logits_processors(
        repetition_penalty=strength, repetition_context_size=_ALL
    )
    return processors


class OwnLogprobs:
    """The model's log-probabilities without the penalty: mlx-lm reports penalised ones.

    A logits processor, to be put before those that change the logits in place.
    """

    def __init__(self, mx: Any) -> None:
        self._mx = mx
        self._steps: deque[Any] = deque()  # mlx-lm computes one step ahead

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """Keep the log-probabilities [V] of one step; the logits [1, V] stay as they are."""
        values = logits - self._mx.logsumexp(logits, axis=-1, keepdims=True)
        self._steps.append(values.squeeze(0))
        return logits

    def take(self) -> Any:
        """Take the log-probabilities [V] of the next step; the steps come in order."""
        return self._steps.popleft()
