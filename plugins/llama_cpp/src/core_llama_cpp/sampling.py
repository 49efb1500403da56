"""From logits to a token, one row at a time: a row's draw knows nothing of its neighbours.

Order: repeat penalty, top_p, min_p, top_k, temperature, draw. The filters look at the
distribution at temperature 1, after the penalty. llama.cpp's own samplers renormalise between
filters and penalise a window of tokens, so they do not fit these definitions.

Shapes: V vocabulary, K candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from core.errors import InvalidModelError
from core.options import GenerateConfig
from core_llama_cpp.filters import candidates

Row = npt.NDArray[np.float32]  # [V]

# Beyond these, float32 has only 0 and infinity to divide by.
_COLDEST, _HOTTEST = 1e-6, 1e30
_WEAKEST, _STRONGEST = 1e-30, 1e30


class Sampler:
    """Draws the tokens of one request. ``config`` has a seed unless it is greedy."""

    def __init__(self, config: GenerateConfig, prompt: Iterable[int]) -> None:
        self._config = config
        self._penalty = min(max(config.repeat_penalty, _WEAKEST), _STRONGEST)
        self._seen: dict[int, None] = dict.fromkeys(prompt) if self._penalty != 1.0 else {}

    def draw(self, logits: Row, step: int) -> int:
        """The token for this step, from the model's logits [V], which stay as they are.

        Temperature 0 takes the best token, and the lowest id among equals; else ``(seed, step)``
        decide. Raises `core.InvalidModelError` where the logits are not numbers.
        """
        check_numbers(logits)
        row = penalised(logits, list(self._seen), self._penalty)
        token = self._pick(row, step)
        if self._penalty != 1.0:
            self._seen[token] = None
        return token

    def _pick(self, row: Row, step: int) -> int:
        config = self._config
        if config.temperature < _COLDEST:
            return int(row.argmax())
        ids = candidates(row, config.top_k, config.top_p, config.min_p)
        heat = min(config.temperature, _HOTTEST)
        chosen = row if ids is None else row[ids]
        place = _inverse(chosen, heat, uniform(config.seed or 0, step))
        return place if ids is None else int(ids[place])


def penalised(logits: Row, seen: list[int], penalty: float) -> Row:
    """Positive logits of seen tokens divided by the penalty, the others multiplied; a new row."""
    if penalty == 1.0 or not seen:
        return logits
    row = logits.copy()
    values = row[seen]
    with np.errstate(over="ignore"):
        row[seen] = np.where(values > 0, values / np.float32(penalty), values * np.float32(penalty))
    return row


def uniform(seed: int, step: int) -> float:
    """A number in [0, 1): a function of seed and step, by a counter-based generator.

    Philox (Salmon et al., SC 2011): the seed is its key, the step its counter.
    """
    return float(np.random.Generator(np.random.Philox(key=seed, counter=step << 64)).random())


def log_total(logits: Row) -> float:
    """The logarithm of the sum of exponentials."""
    top = float(logits.max())
    if math.isinf(top):
        return top
    return top + math.log(float(np.exp(logits - np.float32(top)).sum(dtype=np.float64)))


def logprob(logits: Row, token: int) -> float:
    """A token's log-probability over the whole vocabulary: the model's own, without options."""
    return float(logits[token]) - log_total(logits)


def check_numbers(logits: Row) -> None:
    """Raise `core.InvalidModelError` where a logit is NaN: the maximum then is, too."""
    if math.isnan(float(logits.max())):
        raise InvalidModelError(
            "The model's logits for this prompt are not numbers: its weights are broken. "
            "Download the model again."
        )


def _inverse(logits: Row, temperature: float, luck: float) -> int:
    """Where the running sum of probabilities, in order of ids, passes ``luck`` of its total."""
    top = logits.max()
    if math.isinf(float(top)):
        return int(logits.argmax())
    heights = (logits - top).astype(np.float64) / temperature
    running = np.exp(heights, out=heights).cumsum()
    place = int(running.searchsorted(luck * running[-1], side="right"))
    return min(place, len(running) - 1)
