"""What an engine tells ``logging`` of a batch that ran."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable


def tell_batch(logger: logging.Logger, rows: int, tokens: Callable[[], int], since: float) -> None:
    """Tell the size of a batch, and the time since it was handed to the device.

    ``tokens`` counts those that were computed; it is not asked where nobody listens.
    """
    if logger.isEnabledFor(logging.DEBUG):
        seconds = time.monotonic() - since
        logger.debug("a batch of %d rows and %d tokens took %.3f s", rows, tokens(), seconds)
