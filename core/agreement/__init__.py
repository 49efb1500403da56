"""How far a model's labels agree with gold ones: added up row by row, reported, drawn.

::

    agreement = Agreement()
    agreement.add("sports", "sports", 0.93)
    agreement.add("finance", None)  # unsure, or failed
    report = agreement.to_dict()
    picture = svg(report)
"""

from core.agreement.plot import svg
from core.agreement.tally import Agreement

__all__ = ["Agreement", "svg"]
