"""Base of both estimators: a model by name or as an object, and texts as input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.base import BaseEstimator, clone

import core
from core.api import is_named, shared_model
from core_sklearn.logprobs import checked


class TextEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator of texts, with a ``model``, a ``backend`` for it and load ``options``."""

    model: Any
    backend: str
    options: Mapping[str, Any] | None

    def _model(self) -> Any:
        return shared_model(self.model, self.backend, self.options)

    def _texts(self, X: Any, *, reset: bool = False) -> list[str]:
        """Return the texts of an input; ``reset`` in `fit`. Raises TypeError and ValueError."""
        return checked(X, type(self).__name__)

    def __sklearn_clone__(self) -> Any:
        """Return a clone with the same model.

        scikit-learn would copy a loaded one with its weights.
        """
        given = self.get_params(deep=False)
        copied = {
            name: clone(value, safe=False) for name, value in given.items() if name != "model"
        }
        return type(self)(model=self.model, **copied)

    def __getstate__(self) -> Any:
        """Return the state for pickle. Raises `core.InvalidOptionError` for a loaded model."""
        if not is_named(self.model):
            raise core.InvalidOptionError(
                "model", self.model, "a path or a name, for an estimator that is pickled"
            )
        state = super().__getstate__()
        return {**state, "_few": None} if "_few" in state else state  # it has the loaded model

    def __sklearn_tags__(self) -> Any:
        """Return the tags of an estimator of texts, one per row."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags
