"""Choice of a prompt: candidates compared on texts without bias; see `core_tasks.tune`."""

from core_tasks.tuning.trial import Expectation, Trial, Tuning
from core_tasks.tuning.tune import SENTENCES, tune

__all__ = ["SENTENCES", "Expectation", "Trial", "Tuning", "tune"]
