"""`LabelClassifier`: a model's labels as a classifier, raw, calibrated or headed.

Shapes: n texts, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

import core
from core import validate
from core.calibration import CONTENT_FREE, Adjustment, Level
from core.secret import hidden
from core.tasks.fitting import calibration_of, names_of
from core.tasks.template import behind
from core.tuning.methods import Method, Said
from core_learn import FewShot
from core_sklearn.estimating import TextEstimator
from core_sklearn.logprobs import Array, said

LEVELS: tuple[Level, ...] = ("raw", "L0", "L1", "L2")


class LabelClassifier(ClassifierMixin, TextEstimator):  # type: ignore[misc]
    """Classifies texts by how likely a local model finds each label to follow.

    ``model`` is a path or a name, which is loaded on first use and shared by all clones, or a
    loaded model. ``template`` has ``{text}``. ``labels`` are the classes' names for the model: a
    mapping from class to label, or a sequence of labels that are the classes themselves; by default
    each class is its own label. ``words`` are further ones for a label, as in `core.Task`.

    ``level``: "raw"; "L0", with the ``prior`` off ("content-free", "pmi", or "batch", which is
    that of the texts of `fit`), as `core.Task.fit_prior` does it; "L1", with that (or none, "") and
    what ``method`` fits on the texts' classes ("temperature" or "isotonic"); "L2", a head on the
    hidden states, which learns the classes and reads no label (`core_learn.FewShot`). Weights of
    samples are not taken: what is fitted knows none.

    ``classes_`` [K] are sorted as scikit-learn has them. ``calibration_`` is what was fitted, None
    for raw, and ``head_`` a head.
    """

    def __init__(
        self,
        model: Any,
        template: str = "{text}",
        labels: Mapping[Any, str] | Sequence[str] | None = None,
        *,
        words: Mapping[str, Sequence[str]] | None = None,
        label_prefix: str = " ",
        level: Level = "raw",
        prior: str = "content-free",
        method: str = "temperature",
        backend: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.template = template
        self.labels = labels
        self.words = words
        self.label_prefix = label_prefix
        self.level = level
        self.prior = prior
        self.method = method
        self.backend = backend
        self.options = hidden(options)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the level on texts, and on their classes where it takes these.

        Without ``y``, which raw and L0 do not need, ``labels`` say the classes. Raises TypeError
        and ValueError for what holds no texts, and the errors of `core.Task` and `core_learn`.
        """
        level = validate.one_of("level", self.level, LEVELS)
        texts, y = self._texts(X, reset=True), _target(y)
        names = self._names(y)
        places = None if y is None else self._places(texts, y)
        if level in ("L1", "L2") and places is None:
            raise ValueError(
                f"level={level!r} requires y to be passed, but the target y is None. Give the "
                "texts' classes."
            )

        self.calibration_, self.head_ = None, None
        self._few: FewShot | None = None
        if level == "L2":
            assert places is not None
            few = FewShot(self._model(), template=self.template)
            self.head_ = few.fit(texts, [names[place] for place in places], names).head
            self._few = few
            return self
        self.task_ = core.Task(
            self.template, names, words=self._words(), label_prefix=self.label_prefix
        )
        if level != "raw":
            self.calibration_ = self._fitted(texts, places or [])
        return self

    def predict_proba(self, X: Any) -> Array:
        """The probabilities of ``classes_`` for each text: [n, K].

        Raises the error of the first text that the model cannot read.
        """
        check_is_fitted(self, "classes_")
        texts, model = self._texts(X), self._model()
        if self.head_ is not None:
            if self._few is None or self._few.model is not model:
                self._few = FewShot.with_head(self.head_, model)  # knows the model by its states
            shares: Array = self._few.predict_proba(texts)
            return shares
        if self.calibration_ is not None:
            self.calibration_.check(self.task_.key(model))
        rows = said(model, self.task_, texts)
        adjust = Adjustment() if self.calibration_ is None else self.calibration_.adjustments[""]
        found = [adjust(row) for row in rows.tolist()]
        return np.exp(np.array(found, np.float64).reshape(len(texts), len(self.classes_)))

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of `predict_proba`: [n, K]."""
        with np.errstate(divide="ignore"):
            logs: Array = np.log(self.predict_proba(X))
        return logs

    def predict(self, X: Any) -> Array:
        """The likeliest class of each text: [n]."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        found: Array = self.classes_[likeliest]
        return found

    # ----------------------------------------------------------------------- fitting

    def _names(self, y: Any) -> tuple[str, ...]:
        """The labels of the classes, which are noted, in their order."""
        given = self.labels
        if given is None and y is None:
            raise ValueError(
                "This classifier requires y to be passed, but the target y is None, and there are "
                "no labels either: nobody knows the classes. Give either."
            )

        if given is None:
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                raise ValueError(
                    f"y has 1 class, {self.classes_[0]!r:.40}: to classify takes two. Give texts "
                    "of others, or labels."
                )
            return tuple(str(each) for each in self.classes_.tolist())

        if isinstance(given, Mapping):
            self.classes_ = np.array(sorted(given))
            return tuple(given[each] for each in self.classes_.tolist())
        self.classes_ = np.array(sorted(given))
        return tuple(self.classes_.tolist())

    def _places(self, texts: Sequence[str], y: Any) -> list[int]:
        """The number of each text's class. Raises ValueError for one that is none."""
        given = y.tolist()
        if len(given) != len(texts):
            raise ValueError(f"There are {len(texts)} texts and {len(given)} classes.")
        known = {each: place for place, each in enumerate(self.classes_.tolist())}
        for each in given:
            if each not in known:
                raise ValueError(f"y has {each!r:.40}, which is none of {[*known]!r:.80}.")
        return [known[each] for each in given]

    def _words(self) -> dict[str, tuple[str, ...]]:
        return {label: tuple(each) for label, each in (self.words or {}).items()}

    def _fitted(self, texts: Sequence[str], places: Sequence[int]) -> core.Calibration | None:
        """Return the calibration that the level fits to these texts; None for none."""
        model, task = self._model(), self.task_
        rows = said(model, task, texts).tolist()
        method = Method(self.prior, self.method if self.level == "L1" else "")
        free, named = self._content_free()
        heard = Said(rows, free, self._domain(), 0.0, 0.0, named)
        if not method.possible(heard):
            method = replace(method, prior="")
        if method.level == "raw":
            return None
        adjustment = method.adjustment(heard, range(len(rows)), places)
        known = {"": [*rows]}
        fitted = {"": adjustment}
        return calibration_of(task, model, method.level, method.name, fitted, known)

    def _content_free(self) -> tuple[list[list[float]], list[list[float]]]:
        """The rows after texts that say nothing, and after the labels' names."""
        if self.prior != "content-free":
            return [], []
        texts = [*CONTENT_FREE, *names_of(self.task_)]
        rows: list[list[float]] = said(self._model(), self.task_, texts).tolist()
        return rows[: len(CONTENT_FREE)], rows[len(CONTENT_FREE) :]

    def _domain(self) -> list[list[float]]:
        """The row behind the prompt without its text."""
        if self.prior != "pmi":
            return []
        bare = core.Task(
            "{text}", self.task_.labels, words=self._words(), label_prefix=self.label_prefix
        )
        domain = behind(self.template, "text")
        found: list[list[float]] = said(self._model(), bare, [domain]).tolist()
        return found


def _target(y: Any) -> Any:
    """The classes of the texts as one column. Raises ValueError for numbers that are no classes."""
    if y is None:
        return None
    found = column_or_1d(y, warn=True)
    check_classification_targets(found)
    return found
