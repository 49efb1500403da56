"""`LabelClassifier`: a model's labels as a classifier, raw, calibrated or with a trained head.

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

import core_tasks
from core import validate
from core.options import LABEL_SENTENCE
from core.secret import hidden
from core_learn import FewShot
from core_sklearn.estimating import TextEstimator
from core_sklearn.logprobs import Array, label_logprobs
from core_tasks.calibration import CONTENT_FREE, Adjustment, Level
from core_tasks.fitting import calibration_of, check_prior, named_rows, texts_with_names
from core_tasks.template import Template
from core_tasks.tuning.methods import Method, Said

LEVELS: tuple[Level, ...] = ("raw", "L0", "L1", "L2")


class LabelClassifier(ClassifierMixin, TextEstimator):  # type: ignore[misc]
    """A classifier of texts by the probabilities that a local model gives the labels.

    ``model`` is a path or a name, which is loaded on first use and shared by all clones, or a
    loaded model. ``template`` has ``{text}``. ``labels`` are the classes' names for the model: a
    mapping from class to label, or a sequence of labels that are the classes themselves; by default
    each class is its label. ``words`` are further ones for a label, as in `core_tasks.Task`.

    ``label_sentence`` is for an encoder, which compares it with the text.

    ``level``: "raw"; "L0", with the ``prior`` subtracted ("content-free", "pmi", or "batch" and
    "mean", the priors of the texts of `fit`), as in `core_tasks.Task.fit_prior`; "L1", with a prior
    (or none, "") and a ``method`` fitted on the texts' classes ("temperature" or "isotonic"); "L2",
    a classifier head on the hidden states, which learns the classes and reads no labels
    (`core_learn.FewShot`). Sample weights are not supported.

    ``classes_`` [K] are sorted as in scikit-learn. ``calibration_`` is the fitted calibration, None
    for raw, and ``head_`` the head.
    """

    def __init__(
        self,
        model: Any,
        template: str = "{text}",
        labels: Mapping[Any, str] | Sequence[str] | None = None,
        *,
        words: Mapping[str, Sequence[str]] | None = None,
        label_prefix: str = " ",
        label_sentence: str = LABEL_SENTENCE,
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
        self.label_sentence = label_sentence
        self.level = level
        self.prior = prior
        self.method = method
        self.backend = backend
        self.options = hidden(options)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the level on texts, and on their classes if it uses them.

        Without ``y``, which raw and L0 do not need, ``labels`` are the classes. Raises TypeError
        and ValueError if the input has no texts, and the errors of `core_tasks.Task` and
        `core_learn`.
        """
        level = validate.one_of("level", self.level, LEVELS)
        texts, y = self._texts(X, reset=True), _target(y)
        names = self._names(y)
        places = None if y is None else self._places(texts, y)
        if level in ("L1", "L2") and places is None:
            raise ValueError(
                f"level={level!r} requires y to be passed, but the target y is None. Pass the "
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
        self.task_ = core_tasks.Task(
            self.template,
            names,
            words=self._words(),
            label_prefix=self.label_prefix,
            label_sentence=self.label_sentence,
        )
        if level != "raw":
            self.calibration_ = self._fitted(texts, places or [])
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities of ``classes_`` for each text: [n, K].

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
        rows = label_logprobs(model, self.task_, texts)
        adjust = Adjustment() if self.calibration_ is None else self.calibration_.adjustments[""]
        adjusted = [adjust(row) for row in rows.tolist()]
        return np.exp(np.array(adjusted, np.float64).reshape(len(texts), len(self.classes_)))

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`: [n, K]."""
        with np.errstate(divide="ignore"):
            logs: Array = np.log(self.predict_proba(X))
        return logs

    def predict(self, X: Any) -> Array:
        """Return the likeliest class of each text: [n]."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        predicted: Array = self.classes_[likeliest]
        return predicted

    # ----------------------------------------------------------------------- fitting

    def _names(self, y: Any) -> tuple[str, ...]:
        """Set the classes, and return their labels in the same order."""
        given = self.labels
        if given is None and y is None:
            raise ValueError(
                "This classifier requires y to be passed, but the target y is None, and labels is "
                "None, too. Pass one of them."
            )

        if given is None:
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                raise ValueError(
                    f"y has 1 class, {self.classes_[0]!r:.40}: at least two are required. Add "
                    "texts of other classes, or pass labels."
                )
            return tuple(str(name) for name in self.classes_.tolist())

        if isinstance(given, Mapping):
            self.classes_ = np.array(sorted(given))
            return tuple(given[name] for name in self.classes_.tolist())
        self.classes_ = np.array(sorted(given))
        return tuple(self.classes_.tolist())

    def _places(self, texts: Sequence[str], y: Any) -> list[int]:
        """Return the index of each text's class. Raises ValueError for an unknown class."""
        given = y.tolist()
        if len(given) != len(texts):
            raise ValueError(f"{len(texts)} texts and {len(given)} classes: pass as many.")
        known = {name: place for place, name in enumerate(self.classes_.tolist())}
        for name in given:
            if name not in known:
                raise ValueError(f"y has {name!r:.40}, which is not one of {[*known]!r:.80}.")
        return [known[name] for name in given]

    def _words(self) -> dict[str, tuple[str, ...]]:
        return {label: tuple(synonyms) for label, synonyms in (self.words or {}).items()}

    def _fitted(self, texts: Sequence[str], places: Sequence[int]) -> core_tasks.Calibration | None:
        """Return the calibration that the level fits to these texts; None for none."""
        model, task = self._model(), self.task_
        check_prior(model, self.prior)
        rows = label_logprobs(model, task, texts).tolist()
        method = Method(self.prior, self.method if self.level == "L1" else "")
        free, named = self._content_free()
        heard = Said(rows, free, self._domain(), None, 0.0, named)
        if not method.possible(heard):
            method = replace(method, prior="")
        if method.level == "raw":
            return None
        adjustment = method.adjustment(heard, range(len(rows)), places)
        known = {"": [*rows]}
        fitted = {"": adjustment}
        return calibration_of(task, model, method.level, method.name, fitted, known)

    def _content_free(self) -> tuple[list[list[float]], list[list[float] | None]]:
        """Return the rows after content-free texts, and after the labels' names."""
        if self.prior != "content-free":
            return [], []
        names = texts_with_names(self.task_)
        texts = [*CONTENT_FREE, *names.values()]
        rows: list[list[float]] = label_logprobs(self._model(), self.task_, texts).tolist()
        free = len(CONTENT_FREE)
        return rows[:free], named_rows(self.task_, names, rows[free:])

    def _domain(self) -> list[list[float]]:
        """Return the row after the prompt without its text."""
        if self.prior != "pmi":
            return []
        bare = core_tasks.Task(
            "{text}", self.task_.labels, words=self._words(), label_prefix=self.label_prefix
        )
        domain = Template(self.template).after("text").source
        scores: list[list[float]] = label_logprobs(self._model(), bare, [domain]).tolist()
        return scores


def _target(y: Any) -> Any:
    """Return the classes of the texts as one column.

    Raises ValueError for numbers that are not classes.
    """
    if y is None:
        return None
    column = column_or_1d(y, warn=True)
    check_classification_targets(column)
    return column
