"""Classifiers that learn from a few labelled texts, on the hidden states of a model.

::

    few = core_learn.FewShot(model).fit(texts, labels)
    few.predict_proba(others)
    few.save("head.safetensors")
"""

from core_learn.errors import ForeignHeadError, HeadFileError, LearnError, TrainingDataError
from core_learn.fewshot import FewShot
from core_learn.files import HEAD_KIND, Head, load_head, save_head

__all__ = [
    "HEAD_KIND",
    "FewShot",
    "ForeignHeadError",
    "Head",
    "HeadFileError",
    "LearnError",
    "TrainingDataError",
    "load_head",
    "save_head",
]
