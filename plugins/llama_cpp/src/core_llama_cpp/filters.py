"""top_p, min_p and top_k: which tokens may be drawn.

All three keep the best tokens up to some rank. So with the tokens in order, best first and equal
logits by id, the strictest one decides how many pass. They look at the distribution at
temperature 1.

Shapes: V vocabulary, K candidates.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.float32]  # [V]
Ids = npt.NDArray[np.intp]  # [K]

_NUCLEUS = 1024  # candidates among which top_p nearly always ends


def candidates(logits: Row, top_k: int, top_p: float, min_p: float) -> Ids | None:
    """The ids [K] that pass all filters, ascending; None: every token does.

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


def best_ids(logits: Row, count: int) -> Ids:
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
    for width in (min(_NUCLEUS, most), most):
        best = best_ids(logits, width)
        before = masses[best].cumsum() - masses[best]  # the mass of better tokens
        within = before < goal
        if not within[-1]:
            break
    within[0] = True
    kept: Ids = best[within]
    return kept


def _likely(values: Row, logits: Row, min_p: float) -> npt.NDArray[np.bool_]:
    """At least ``min_p`` times as likely as the best token (arXiv 2407.01082)."""
    enough: npt.NDArray[np.bool_] = values >= logits.max() + np.float32(math.log(min_p))
    return enough
