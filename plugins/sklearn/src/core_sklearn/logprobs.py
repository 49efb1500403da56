"""What a model said of each text: kept, so that folds, levels and clones ask it once.

Shapes: n texts, K labels.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

import core

Array = np.ndarray[Any, Any]

MOST = 200_000
"""Rows that are kept for a model, with all its templates; the oldest go first."""

_LOCK = RLock()
_KEPT: WeakKeyDictionary[Any, OrderedDict[Hashable, list[float]]] = WeakKeyDictionary()


def said(model: Any, task: core.Task, texts: Sequence[str]) -> Array:
    """The raw log-probabilities of a task's labels behind each text: [n, K].

    A text that was asked before is not asked again. Raises the error of the first text that has
    one, and what ``model.classify`` raises.
    """
    kept = _kept_of(model)
    question = task.template, tuple(task.words.items()), task.label_prefix
    with _LOCK:
        rows = {text: kept[question, text] for text in texts if (question, text) in kept}
    unknown = [text for text in dict.fromkeys(texts) if text not in rows]
    for text, decision in zip(unknown, task.classify(model, unknown), strict=True):
        if decision.error is not None:
            decision.error.add_note(f"This is the error of text {[*texts].index(text)}.")
        rows[text] = [*(decision.raise_for_error().logprobs or {}).values()]

    with _LOCK:
        kept.update({(question, text): rows[text] for text in unknown})
        while len(kept) > MOST:
            kept.popitem(last=False)
    return np.array([rows[text] for text in texts], np.float64).reshape(
        len(texts), len(task.labels)
    )


def _kept_of(model: Any) -> OrderedDict[Hashable, list[float]]:
    with _LOCK:
        try:
            return _KEPT.setdefault(model, OrderedDict())
        except TypeError:  # a backend's own class may allow no weak references
            return OrderedDict()


def checked(texts: object, who: str) -> list[str]:
    """The texts as a list of plain strings.

    Raises ValueError for a table of several columns, and TypeError for what holds no texts.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise TypeError(f"{who} takes a sequence of texts; wrap a single one in a list.")
    shape = getattr(texts, "shape", ())
    if len(shape) > 1:
        raise ValueError(
            f"{who} takes one text a row, and these have the shape {shape}. Give one column."
        )
    rows = list(texts)
    for place, text in enumerate(rows):
        if not isinstance(text, str):
            raise TypeError(f"Text {place} is {text!r:.40}, and not a string.")
    return [str(text) for text in rows]
