"""A warning, once per model, if the labels are unlikely after every prompt.

Usually the prompts are bare texts, which do not lead to a label. The best of unlikely labels is
then arbitrary, and its probabilities do not show it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

from core.types import ClassifyResult

_TINY, _RELATIVE = 1e-6, 1e-3  # of all probability; of the drawn token's, if known
_SEVERAL = 2  # rows

# A separate logger: `infer-cli` reports such rows itself, and silences it.
_LOG = logging.getLogger("core_runtime.label_mass")


class LabelMass:
    """A watch on the results of calls, until a call of several rows has only tiny label masses."""

    def __init__(self) -> None:
        self._logged = False

    def look(self, results: Iterable[ClassifyResult]) -> None:
        """Log a warning at the first results without a likely label in any row."""
        if self._logged:
            return
        rows = 0
        for result in results:  # of most calls, the first ends this
            if result.error is not None:
                continue
            if result.label_mass is None or not result.label_mass < _least(result):
                return
            rows += 1
        if rows < _SEVERAL:
            return

        self._logged = True
        _LOG.warning(
            "In none of %d rows does the model expect any of the labels (label_mass). Let the "
            "prompts lead to the labels, as '{text} This news is about' does, and look at "
            "label_prefix, which joins them. This is logged once for each model.",
            rows,
        )


def _least(result: ClassifyResult) -> float:
    logprob = result.token.logprob if result.token is not None else None
    return _TINY if logprob is None else max(_TINY, _RELATIVE * math.exp(logprob))
