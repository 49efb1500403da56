"""Exact bounds of a share, from the incomplete beta function in plain Python."""

from __future__ import annotations

import math

_TINY = 1e-300  # in place of a zero that would be divided by
_ENOUGH = 1e-16
_MOST = 100_000  # terms; some ten times the root of the larger parameter are needed


def beta_inc(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function ``I_x(a, b)``, for ``a, b > 0`` and x in
    0..1.

    A continued fraction, by Lentz's method: W. H. Press et al., Numerical Recipes, 3rd edition,
    section 6.4; https://dlmf.nist.gov/8.17.E22. It converges fast below the mean, and above it
    ``1 - I_{1-x}(b, a)`` is computed.
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_inc(b, a, 1 - x)
    front = a * math.log(x) + b * math.log1p(-x)
    front += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(front) * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of `beta_inc`."""
    c, d = 1.0, 1 / _apart(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MOST):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _apart(1 + term * d)
            c = _apart(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _ENOUGH:
            break
    return value


def _apart(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def at_most(errors: int, rows: int, rate: float) -> float:
    """Return the probability of at most ``errors`` errors in ``rows`` rows at this error rate."""
    return 1.0 if errors >= rows else beta_inc(rows - errors, errors + 1, 1 - rate)


def upper_bound(errors: int, rows: int, confidence: float = 0.95) -> float:
    """Return the one-sided upper bound of the error rate; 1.0 without any row.

    The rate at which `at_most` is ``1 - confidence``: C. J. Clopper and E. S. Pearson, The use of
    confidence or fiducial limits, Biometrika 26 (1934), 404-413. Found by halving, to 1e-15.
    """
    if errors >= rows:
        return 1.0
    low, high = errors / rows, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if at_most(errors, rows, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2
