"""The models that a client may name: the given ones, or all discovered ones; never a path."""

from __future__ import annotations

from collections.abc import Sequence

import core
from core.api import shared_model
from core.models.locating import located
from core.models.stores import discover_stores, model_at
from core.types import DiscoveredModel


class Models:
    """Models by name: those in ``given``, as paths or names, or by default all models found.

    Raises `core.ModelNotFoundError` for a path without a model, and `core.InvalidOptionError` for
    two with the same name.
    """

    def __init__(self, given: Sequence[str] = (), backend: str = "") -> None:
        self._backend = backend
        self._given = [_described(model) for model in given]
        names = [model.name for model in self._given]
        if twice := [name for name in names if names.count(name) > 1]:
            raise core.InvalidOptionError("models", twice[0], "models of different names")

    def found(self) -> list[DiscoveredModel]:
        """Return the models that exist now."""
        return self._given or discover_stores()

    def load(self, name: str) -> core.TextModel:
        """Return the model of this name, loaded on first use; "" if there is only one.

        Raises `core.ModelNotFoundError` for an unknown name, and the errors of a load.
        """
        models = self._given or discover_stores(examine=False)
        fits = [model for model in models if not name or name == model.name or name in model.names]
        exact = [model for model in fits if name == model.name]
        if len(exact or fits) != 1:
            known = ", ".join(sorted({repr(model.name) for model in models})) or "none"
            what = f"No single model is named {name!r}" if name else "The model is not named"
            raise core.ModelNotFoundError(f"{what}. Choose one of: {known}.")
        return shared_model((exact or fits)[0].handle, self._backend)


def _described(model: str) -> DiscoveredModel:
    place = located(model)
    description = place.described(model_at(place.path))
    if description is None:
        raise core.ModelNotFoundError(
            f"{place.path!r} is not a model: expected a directory with config.json, or a GGUF file."
        )
    return description
