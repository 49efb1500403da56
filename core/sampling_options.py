"""The table of sampling options, one row each, from which their use everywhere is derived.

From this table come the checks of `core.GenerateConfig`, the flags of ``infer-cli``, the options
that a backend rejects until it supports them (`core.kit.support.REFUSABLE`), and test values of the
conformance suite. A module of its own, since ``infer-cli --help`` needs no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from core import validate


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOption:
    """A row of the table. At its default, an option does not change a greedy answer."""

    name: str
    kind: type[float] | type[int]
    default: float | None
    """The neutral value: a filter or a penalty is off there."""
    low: float
    high: float = math.inf
    above: bool = False
    """True if ``low`` itself is out of range."""
    telling: float
    """A value with an effect: with it a model draws differently than with the default."""
    wrong: float
    """A value out of range."""
    help: str
    """The help text of its flag on the command line, without the default."""
    short: tuple[str, ...] = ()
    """Other spellings of its flag."""
    filters: bool = False
    """True if it removes tokens that could be drawn otherwise."""
    only_best: float | None = None
    """The value at which a filter keeps only the best token, if there is one."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Spellings on the command line, the primary one first."""
        return ("--" + self.name.replace("_", "-"), *self.short)

    def checked(self, value: object) -> float | None:
        """Return the value as an int or float. Raises `InvalidOptionError` if out of range."""
        if value is None and self.default is None:
            return None
        if self.kind is int:
            high = None if self.high == math.inf else int(self.high)
            return validate.integer(self.name, value, int(self.low), high)
        return validate.real(self.name, value, self.low, self.high, above=self.above)


SAMPLING_OPTIONS = (
    SamplingOption(
        name="temperature", kind=float, default=0.0, low=0.0, telling=0.5, wrong=-1.0,
        short=("--temp",), help="Sampling temperature; 0 is greedy."),
    SamplingOption(
        name="top_k", kind=int, default=0, low=0, telling=2, wrong=-1, filters=True, only_best=1,
        help="Sample from the K most likely tokens; 0 disables."),
    SamplingOption(
        name="typical_p", kind=float, default=1.0, low=0.0, high=1.0, above=True, telling=0.5,
        wrong=0.0, filters=True, help="Locally typical sampling threshold; 1 disables."),
    SamplingOption(
        name="top_p", kind=float, default=1.0, low=0.0, high=1.0, above=True, telling=0.5,
        wrong=0.0, filters=True, only_best=1e-6, help="Nucleus sampling threshold; 1 disables."),
    SamplingOption(
        name="min_p", kind=float, default=0.0, low=0.0, high=1.0, telling=0.5, wrong=2.0,
        filters=True, only_best=1.0,
        help="Drop tokens below this fraction of the top token's probability; 0 disables."),
    SamplingOption(
        name="repeat_penalty", kind=float, default=1.0, low=0.0, above=True, telling=1.5, wrong=0.0,
        help="Penalty for repeated tokens; 1 disables."),
    SamplingOption(
        name="seed", kind=int, default=None, low=0, high=2**64 - 1, telling=1, wrong=-1,
        help="Random seed; makes sampling repeatable."),
)  # fmt: skip
"""All options, in the order of `GenerateConfig`, of the flags, and of the checks."""

FILTERS = tuple(option for option in SAMPLING_OPTIONS if option.filters)
"""The options that restrict which tokens may be drawn."""
