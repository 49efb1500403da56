"""Log records of an engine about its batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable


def log_batch(logger: logging.Logger, rows: int, tokens: Callable[[], int], since: float) -> None:
    """Log the size of a batch, and the time since it was passed to the device.

    ``tokens`` counts the computed ones; it is only called if the record is logged.
    """
    if logger.isEnabledFor(logging.DEBUG):
        seconds = time.monotonic() - since
        logger.debug("a batch of %d rows and %d tokens took %.3f s", rows, tokens(), seconds)
