"""lm-evaluation-harness on any backend of core.

::

    import lm_eval
    from core_lm_eval import CoreLM

    found = lm_eval.simple_evaluate(model=CoreLM("path/to/model"), tasks=["hellaswag"])
"""

from core_lm_eval.model import CoreLM

__all__ = ["CoreLM"]
