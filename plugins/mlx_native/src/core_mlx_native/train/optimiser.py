"""MLX's AdamW over an adapter's parameters, with a state that can be saved, and its learning rate.

Its parameters are float32 whatever the adapter's dtype: a step of 1e-5 would be lost in bfloat16,
whose spacing near 1 is 8e-3 (mixed precision, arXiv 1710.03740).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import mlx.core as mx
from mlx import optimizers

from core.training import TrainConfig

_MOMENTS = ("m", "v")


def learning_rate(config: TrainConfig, step: int) -> float:
    """Return the rate of a step, counted from 1; it depends on nothing else, so runs can resume.

    It rises linearly over the first ``warmup`` steps, to the full rate at the last of them; then it
    is constant, or falls along half a cosine (arXiv 1608.03983, without restarts).
    """
    if step <= config.warmup:
        return config.learning_rate * step / config.warmup
    if config.schedule == "constant":
        return config.learning_rate
    steps = max(1, config.iterations - config.warmup)
    done = (step - 1 - config.warmup) / steps  # 0 at the first step after the warm-up
    fall = config.learning_rate - config.final_learning_rate
    return config.final_learning_rate + fall * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


class Optimiser:
    """AdamW with decoupled weight decay (arXiv 1711.05101), norm clipping and a rate schedule."""

    def __init__(self, config: TrainConfig, parameters: Mapping[str, mx.array]) -> None:
        self._config = config
        self._adam = optimizers.AdamW(
            learning_rate=config.learning_rate,
            betas=[*config.betas],
            eps=config.eps,
            weight_decay=config.weight_decay,
            bias_correction=config.bias_correction,
        )
        self._adam.init(dict(parameters))

    def moved(
        self, parameters: Mapping[str, mx.array], gradient: Mapping[str, mx.array], step: int
    ) -> tuple[dict[str, mx.array], mx.array]:
        """Return the parameters after a step, counted from 1, and the gradient norm before
        clipping.
        """
        slopes, norm = dict(gradient), _norm(gradient)
        if self._config.clip_norm:
            slopes, norm = _clipped(slopes, self._config.clip_norm)
        self._adam.learning_rate = learning_rate(self._config, step)
        return self._adam.apply_gradients(slopes, dict(parameters)), norm

    def arrays(self) -> dict[str, mx.array]:
        """Return each parameter's moments, ``NAME/m`` and ``NAME/v``, and the step count."""
        state = self._adam.state
        moments = {
            f"{name}/{moment}": value[moment]
            for name, value in state.items()
            if isinstance(value, dict)
            for moment in _MOMENTS
        }
        return {**moments, "step": state["step"]}

    def restore(self, arrays: Mapping[str, mx.array]) -> None:
        """Restore the state from the result of `arrays`."""
        state = self._adam.state
        for name, value in state.items():
            if isinstance(value, dict):
                value.update({moment: arrays[f"{name}/{moment}"] for moment in _MOMENTS})
        state["step"] = arrays["step"]


def _norm(gradient: Mapping[str, mx.array]) -> mx.array:
    squares = [slope.astype(mx.float32).square().sum() for slope in gradient.values()]
    return mx.sqrt(mx.stack(squares).sum())


_clipped: Callable[[dict[str, mx.array], float], tuple[dict[str, mx.array], mx.array]]
_clipped = optimizers.clip_grad_norm
