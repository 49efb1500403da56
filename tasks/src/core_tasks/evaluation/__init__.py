"""Evaluation: items with gold answers, run on a model, marked and counted.

::

    items = [core_tasks.Item("2 + 3 =", ("5",)), core_tasks.Item("The sky is", ("blue",), ("blue",
    "loud"))] found = core_tasks.evaluate(model, items) found.accuracy, found.interval
"""

from core_tasks.evaluation.comparison import Comparison, compare

__all__ = ["Comparison", "compare"]
