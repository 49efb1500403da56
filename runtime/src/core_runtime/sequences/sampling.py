"""Sampling of a token from logits, one row at a time: draws do not depend on other rows.

typical_p, top_p, min_p and top_k, in this order, filter the tokens that may be drawn.
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

HONOURED = frozenset({"temperature", "top_k", "typical_p", "top_p", "min_p", "repeat_penalty"})
"""The sampling options that apply here; models refuse all others by name."""

_NUCLEUS = 1024  # candidates among which top_p and typical_p nearly always end

# Beyond these, float32 has only 0 and infinity to divide by.
_COLDEST, _HOTTEST = 1e-6, 1e30
_WEAKEST, _STRONGEST = 1e-30, 1e30


def candidates(logits: Row, top_k: int, top_p: float, min_p: float) -> Ids | None:
    """Return the ids [K] that pass all filters, ascending; None if every token does.

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
    """Return a row [V] in which tokens dropped by ``typical_p`` below 1 have the logit -infinity.

    Locally typical sampling (arXiv 2202.00666) by llama.cpp's definition: the smallest set of
    tokens, those whose surprisal is nearest to the entropy first, whose probability exceeds
    ``typical_p``. At least one token remains, not necessarily the best.
    """
    surprisals = log_total(logits) - logits.astype(np.float64)
    masses = np.exp(-surprisals)
    entropy = np.dot(masses[masses > 0], surprisals[masses > 0])
    distances = np.abs(surprisals - entropy)
    leaders = _leading(-distances, masses, len(logits), lambda before: before <= typical_p)
    row = np.full_like(logits, -np.inf)
    row[leaders] = logits[leaders]
    return row


def best_ids(logits: Row | Floats, count: int) -> Ids:
    """Return the best tokens in order: [count].

    The highest logit comes first; equal ones are ordered by id.
    """
    if count >= len(logits):
        return np.argsort(-logits, kind="stable")
    border = np.partition(logits, len(logits) - count)[len(logits) - count]
    ids = np.flatnonzero(logits >= border)  # more than count, where some are equal
    best: Ids = ids[np.argsort(-logits[ids], kind="stable")][:count]
    return best


def _nucleus(logits: Row, top_p: float, most: int) -> Ids:
    """Return the smallest set of best tokens with probability ``top_p``, or ``most`` of them."""
    masses = np.exp((logits - logits.max()).astype(np.float64))
    goal = top_p * masses.sum()
    return _leading(logits, masses, most, lambda before: before < goal)


def _leading(
    scores: Row | Floats, masses: Floats, most: int, goes_on: Callable[[Floats], Flags]
) -> Ids:
    """Return the first tokens by score, while ``goes_on`` is True of the mass before each.

    At least one, at most ``most``. A short list is sorted first, and all tokens only if needed.
    """
    for width in (min(_NUCLEUS, most), most):
        best = best_ids(scores, width)
        within = goes_on(masses[best].cumsum() - masses[best])
        if not within[-1]:
            break
    within[0] = True
    leaders: Ids = best[within]
    return leaders


def _likely(values: Row, logits: Row, min_p: float) -> Flags:
    """Return which tokens are at least ``min_p`` times as likely as the best (arXiv 2407.01082)."""
    enough: Flags = values >= logits.max() + np.float32(math.log(min_p))
    return enough


class Sampler:
    """The sampler of one request's tokens. ``config`` has a seed unless it is greedy."""

    def __init__(self, config: GenerateConfig, prompt: Iterable[int]) -> None:
        self._config = config
        self._penalty = min(max(config.repeat_penalty, _WEAKEST), _STRONGEST)
        self._seen: dict[int, None] = dict.fromkeys(prompt) if self._penalty != 1.0 else {}

    def draw(self, logits: Row, step: int) -> int:
        """Return the token for this step, from the model's logits [V], which are not changed.

        Temperature 0 selects the best token, the lowest id among equals; else ``(seed, step)``
        decide. Raises `core.InvalidModelError` like `check_logits`.
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
    """Return a new row: seen tokens' positive logits divided by the penalty, others multiplied."""
    if penalty == 1.0 or not seen:
        return logits
    row = logits.copy()
    values = row[seen]
    with np.errstate(over="ignore"):
        row[seen] = np.where(values > 0, values / np.float32(penalty), values * np.float32(penalty))
    return row


def uniform(seed: int, step: int) -> float:
    """Return a number in [0, 1) from seed and step, by a counter-based generator.

    Philox (Salmon et al., SC 2011): the seed is the key, the step is the counter.
    """
    return float(np.random.Generator(np.random.Philox(key=seed, counter=step << 64)).random())


def log_total(logits: Row) -> float:
    """Return the logarithm of the sum of exponentials."""
    top = float(logits.max())
    if math.isinf(top):
        return top
    return top + math.log(float(np.exp(logits - np.float32(top)).sum(dtype=np.float64)))


def logprob(logits: Row, token: int) -> float:
    """Return a token's log-probability over the entire vocabulary.

    It is the model's, before any sampling options.
    """
    return float(logits[token]) - log_total(logits)


def check_logits(logits: Row) -> None:
    """Raise `core.InvalidModelError` for logits [V] that are not a distribution.

    They have NaN or +infinity, or only -infinity, which is the logit of an impossible token.
    numpy's maximum is NaN if any value is.
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
    """Return the first id at which the cumulative probability exceeds ``luck`` of its total."""
    top = logits.max()
    if math.isinf(float(top)):
        return int(logits.argmax())
    heights = (logits - top).astype(np.float64) / temperature
    running = np.exp(heights, out=heights).cumsum()
    place = int(running.searchsorted(luck * running[-1], side="right"))
    return min(place, len(running) - 1)
