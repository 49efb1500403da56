"""Which prompt to take: candidates tried on texts, in a table that flatters none; `core.tune`."""

from core.tuning.trial import Expectation, Trial, Tuning
from core.tuning.tune import tune

__all__ = ["Expectation", "Trial", "Tuning", "tune"]
