"""From logits to a token, one row at a time: a row's draw knows nothing of its neighbours.

typical_p, top_p, min_p and top_k, in this order, say which tokens may be drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from core.errors import InvalidModelError
from core.options import GenerateConfig

Row = npt.NDArray[np.float32]  # [V]
Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.intp]  # [K]
Flags = npt.NDArray[np.bool_]

_NUCLEUS = 1024  # candidates among which top_p and typical_p nearly always end

# Beyond these, float32 has only 0 and infinity to divide by.
_COLDEST, _HOTTEST = 1e-6, 1e30
_WEAKEST, _STRONGEST = 1e-30, 1e30


def candidates(logits: Row, top_k: int, top_p: float, min_p: float) -> Ids | None:
    """The ids [K] that pass all filters, ascending; None when every token does.

    At least the best token passes. ``top_k=0``, ``top_p=1`` and ``min_p=0`` are off.
    """
    size = len(logits)
    wanted = min(top_k, size) if top_k else size

    if top_p < 1.0:
        best = _nucleus(logits, top_p, wanted)
    elif wanted < size:
        best = best_ids(logits, wanted)
    elif min_p == 0.0:
        return None
    else:
        return np.flatnonzero(_likely(logits, logits, min_p))

    if min_p > 0.0:
        best = best[_likely(logits[best], logits, min_p)]
    return np.sort(best)


def typical(logits: Row, typical_p: float) -> Row:
    """A row [V] in which what ``typical_p`` below 1 drops has the logit -infinity.

    Locally typical sampling (arXiv 2202.00666) by llama.cpp's definition: the smallest set of
    tokens, those whose surprisal is nearest to the entropy first, whose probability exceeds
    ``typical_p``. At least one stays, perhaps not the best.
    """
    surprisals = log_total(logits) - logits.astype(np.float64)
    masses = np.exp(-surprisals)
    entropy = np.dot(masses[masses > 0], surprisals[masses > 0])
    distances = np.abs(surprisals - entropy)
    kept = _leading(-distances, masses, len(logits), lambda before: before <= typical_p)
    row = np.full_like(logits, -np.inf)
    row[kept] = logits[kept]
    return row


def best_ids(logits: Row | Floats, count: int) -> Ids:
    """The best tokens in order: the highest logit first, the lowest id among equals: [count]."""
    if count >= len(logits):
        return np.argsort(-logits, kind="stable")
    border = np.partition(logits, len(logits) - count)[len(logits) - count]
    ids = np.flatnonzero(logits >= border)  # more than count, where some are equal
    best: Ids = ids[np.argsort(-logits[ids], kind="stable")][:count]
    return best


def _nucleus(logits: Row, top_p: float, most: int) -> Ids:
    """The smallest set of best tokens whose probability reaches ``top_p``, or ``most`` of them."""
    masses = np.exp((logits - logits.max()).astype(np.float64))
    goal = top_p * masses.sum()
    return _leading(logits, masses, most, lambda before: before < goal)


def _leading(
    scores: Row | Floats, masses: Floats, most: int, goes_on: Callable[[Floats], Flags]
) -> Ids:
    """The first tokens by score, as far as the mass in front of each one ``goes_on``.

    One at least, ``most`` at most. A short list is put in order first, and all only if need be.
    """
    for width in (min(_NUCLEUS, most), most):
        best = best_ids(scores, width)
        within = goes_on(masses[best].cumsum() - masses[best])
        if not within[-1]:
            break
    within[0] = True
    kept: Ids = best[within]
    return kept


def _likely(values: Row, logits: Row, min_p: float) -> Flags:
    """At least ``min_p`` times as likely as the best token (arXiv 2407.01082)."""
    enough: Flags = values >= logits.max() + np.float32(math.log(min_p))
    return enough


class Sampler:
    """Draws the tokens of one request. ``config`` has a seed unless it is greedy."""

    def __init__(self, config: GenerateConfig, prompt: Iterable[int]) -> None:
        self._config = config
        self._penalty = min(max(config.repeat_penalty, _WEAKEST), _STRONGEST)
        self._seen: dict[int, None] = dict.fromkeys(prompt) if self._penalty != 1.0 else {}

    def draw(self, logits: Row, step: int) -> int:
        """The token for this step, from the model's logits [V], which stay as they are.

        Temperature 0 takes the best token, and the lowest id among equals; else ``(seed, step)``
        decide. Raises `core.InvalidModelError` as `check_logits` does.
        """
        check_logits(logits)
        row = penalised(logits, list(self._seen), self._penalty)
        token = self._pick(row, step)
        if self._penalty != 1.0:
            self._seen[token] = None
        return token

    def _pick(self, row: Row, step: int) -> int:
        config = self._config
        if config.temperature < _COLDEST:
            return int(row.argmax())
        if config.typical_p < 1.0:
            row = typical(row, config.typical_p)
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


def check_logits(logits: Row) -> None:
    """Raise `core.InvalidModelError` for logits [V] that are no distribution.

    They hold NaN or +infinity, or nothing but -infinity, which is the logit of an impossible token.
    numpy's maximum is NaN where there is one.
    """
    if not math.isfinite(float(logits.max())):
        raise not_finite()


def check_state(state: Row) -> None:
    """Raise `core.InvalidModelError` for a hidden state that holds NaN or infinity."""
    if not np.isfinite(state).all():
        raise not_finite("hidden states")


def not_finite(values: str = "logits") -> InvalidModelError:
    """Return the error of a prompt for which the model computes NaN or infinity."""
    return InvalidModelError(
        f"The model's {values} for this prompt are NaN or infinite: its weights are broken, or "
        "overflow on this device. Download the model again, or load it with gpu_layers=0."
    )


def _inverse(logits: Row, temperature: float, luck: float) -> int:
    """The first id at which the running sum of probabilities passes ``luck`` of its total."""
    top = logits.max()
    if math.isinf(float(top)):
        return int(logits.argmax())
    heights = (logits - top).astype(np.float64) / temperature
    running = np.exp(heights, out=heights).cumsum()
    place = int(running.searchsorted(luck * running[-1], side="right"))
    return min(place, len(running) - 1)
