"""A cache of a model's results for each text, shared by folds, levels and clones.

Shapes: n texts, K labels.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

import core_tasks

Array = np.ndarray[Any, Any]

MOST = 200_000
"""Rows that are cached for a model, with all its templates; the oldest are dropped first."""

_LOCK = RLock()
_KEPT: WeakKeyDictionary[Any, OrderedDict[Hashable, list[float]]] = WeakKeyDictionary()


def label_logprobs(model: Any, task: core_tasks.Task, texts: Sequence[str]) -> Array:
    """Return the raw log-probabilities of a task's labels after each text: [n, K].

    Of a model of label sentences, the logarithms of the probabilities. Cached texts are not
    computed again. Raises the error of the first failed text, and the errors of ``model.classify``.
    """
    cache = _kept_of(model)
    joining = task.label_prefix, task.label_sentence
    question = task.template, tuple(task.words.items()), joining
    with _LOCK:
        rows = {text: cache[question, text] for text in texts if (question, text) in cache}
    unknown = [text for text in dict.fromkeys(texts) if text not in rows]
    for text, decision in zip(
        unknown, task.classify(model, unknown, allow_blank=True), strict=True
    ):
        if decision.error is not None:
            decision.error.add_note(f"This is the error of text {[*texts].index(text)}.")
        rows[text] = [*(decision.raise_for_error().scores or {}).values()]

    with _LOCK:
        cache.update({(question, text): rows[text] for text in unknown})
        while len(cache) > MOST:
            cache.popitem(last=False)
    return np.array([rows[text] for text in texts], np.float64).reshape(
        len(texts), len(task.labels)
    )


def _kept_of(model: Any) -> OrderedDict[Hashable, list[float]]:
    with _LOCK:
        try:
            return _KEPT.setdefault(model, OrderedDict())
        except TypeError:  # a backend's class may not allow weak references
            return OrderedDict()


def checked(texts: object, who: str) -> list[str]:
    """Return the texts as a list of plain strings.

    Raises ValueError for a table of several columns, and TypeError if it does not hold texts.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise TypeError(f"{who} expects a sequence of texts. Wrap a single one in a list.")
    shape = getattr(texts, "shape", ())
    if len(shape) > 1:
        raise ValueError(f"{who} expects one text per row, got the shape {shape}. Pass one column.")
    rows = list(texts)
    for place, text in enumerate(rows):
        if not isinstance(text, str):
            raise TypeError(f"Text {place} is not a string, but {text!r:.40}.")
    return [str(text) for text in rows]
