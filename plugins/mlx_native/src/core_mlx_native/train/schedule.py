"""The learning rate of each step, a function of only the step, so runs can resume anywhere.

It rises linearly over the first ``warmup`` steps, to the full rate at the last of them; then it is
constant, or falls along half a cosine (arXiv 1608.03983, without restarts).
"""

from __future__ import annotations

import math

from core.training import TrainConfig


def learning_rate(config: TrainConfig, step: int) -> float:
    """Return the rate of a step, counted from 1."""
    if step <= config.warmup:
        return config.learning_rate * step / config.warmup
    if config.schedule == "constant":
        return config.learning_rate
    steps = max(1, config.iterations - config.warmup)
    done = (step - 1 - config.warmup) / steps  # 0 at the first step after the warm-up
    fall = config.learning_rate - config.final_learning_rate
    return config.final_learning_rate + fall * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
