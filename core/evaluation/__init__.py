"""Evaluation: items with right answers, asked of a model, marked and added up.

::

    items = [core.Item("2 + 3 =", ("5",)), core.Item("The sky is", ("blue",), ("blue", "loud"))]
    found = core.evaluate(model, items)
    found.accuracy, found.interval
"""

from core.evaluation.comparison import Comparison, compare

__all__ = ["Comparison", "compare"]
