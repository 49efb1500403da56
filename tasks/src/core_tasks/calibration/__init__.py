"""Calibrated probabilities of labels: fitting, saving, loading and applying calibrations.

Inputs and outputs are rows of log-probabilities, without a model. `core_tasks.Task` runs one.
"""

from core_tasks.calibration.adjustment import Adjustment
from core_tasks.calibration.binomial import upper_bound
from core_tasks.calibration.isotonic import fit_isotonic
from core_tasks.calibration.priors import (
    BATCH_STRENGTH,
    CONTENT_FREE,
    CONTENT_FREE_STRENGTH,
    batch_prior,
    content_free_prior,
    far_from_uniform,
    mean_prior,
    naming,
    pmi_prior,
)
from core_tasks.calibration.quality import Quality, quality
from core_tasks.calibration.strength import fit_strength
from core_tasks.calibration.temperature import fit_temperature
from core_tasks.calibration.thresholds import Threshold, row_threshold_for, threshold_for
from core_tasks.calibration.value import Calibration, Key, Level, load_calibration, save_calibration

__all__ = [
    "BATCH_STRENGTH",
    "CONTENT_FREE",
    "CONTENT_FREE_STRENGTH",
    "Adjustment",
    "Calibration",
    "Key",
    "Level",
    "Quality",
    "Threshold",
    "batch_prior",
    "content_free_prior",
    "far_from_uniform",
    "fit_isotonic",
    "fit_strength",
    "fit_temperature",
    "load_calibration",
    "mean_prior",
    "naming",
    "pmi_prior",
    "quality",
    "row_threshold_for",
    "save_calibration",
    "threshold_for",
    "upper_bound",
]
