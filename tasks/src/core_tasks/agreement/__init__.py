"""Agreement of a model's labels with gold labels: counted row by row, reported, plotted.

::

    agreement = Agreement()
    agreement.add("sports", "sports", 0.93)
    agreement.add("finance", None)  # unsure, or failed
    report = agreement.to_dict()
    picture = svg(report)
"""

from core_tasks.agreement.plot import svg
from core_tasks.agreement.tally import Agreement

__all__ = ["Agreement", "svg"]
