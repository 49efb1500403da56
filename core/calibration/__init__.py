"""Probabilities of labels that hold what they say: fitted, saved, loaded, passed; see docs.

Rows of log-probabilities come in and go out; no model is here. `core.Task` asks one.
"""

from core.calibration.adjustment import Adjustment
from core.calibration.binomial import upper_bound
from core.calibration.isotonic import fit_isotonic
from core.calibration.priors import (
    BATCH_STRENGTH,
    CONTENT_FREE,
    batch_prior,
    content_free_prior,
    pmi_prior,
)
from core.calibration.quality import Quality, quality
from core.calibration.temperature import fit_temperature
from core.calibration.thresholds import Threshold, row_threshold_for, threshold_for
from core.calibration.value import Calibration, Key, Level, load_calibration, save_calibration

__all__ = [
    "BATCH_STRENGTH",
    "CONTENT_FREE",
    "Adjustment",
    "Calibration",
    "Key",
    "Level",
    "Quality",
    "Threshold",
    "batch_prior",
    "content_free_prior",
    "fit_isotonic",
    "fit_temperature",
    "load_calibration",
    "pmi_prior",
    "quality",
    "row_threshold_for",
    "save_calibration",
    "threshold_for",
    "upper_bound",
]
