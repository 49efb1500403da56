"""Which models a client may name: those that were given, or all discovered ones; never a path."""

from __future__ import annotations

from collections.abc import Sequence

import core
from core.models.names import located
from core.models.stores import discover_stores, model_at
from core.shared_models import shared_model
from core.types import DiscoveredModel


class Models:
    """Models by name: ``given`` by their paths or names, or without any those of all stores.

    Raises `core.ModelNotFoundError` for a path without a model, and `core.InvalidOptionError` for
    two of one name.
    """

    def __init__(self, given: Sequence[str] = (), backend: str = "") -> None:
        self._backend = backend
        self._given = [_described(model) for model in given]
        names = [model.name for model in self._given]
        if twice := [name for name in names if names.count(name) > 1]:
            raise core.InvalidOptionError("models", twice[0], "models of different names")

    def found(self) -> list[DiscoveredModel]:
        """Those that there are now."""
        return self._given or discover_stores()

    def load(self, name: str) -> core.TextModel:
        """The model of this name; "" is the only one that there is. Loaded once, on first use.

        Raises `core.ModelNotFoundError` for what is no such name, and what a load raises.
        """
        found = self._given or discover_stores(examine=False)
        fits = [model for model in found if not name or name == model.name or name in model.names]
        exact = [model for model in fits if name == model.name]
        if len(exact or fits) != 1:
            known = ", ".join(sorted({repr(model.name) for model in found})) or "none"
            what = f"is called {name!r}" if name else "is the only one"
            raise core.ModelNotFoundError(f"No model {what}. Name one of these: {known}.")
        return shared_model((exact or fits)[0].handle, self._backend)


def _described(model: str) -> DiscoveredModel:
    place = located(model)
    found = place.described(model_at(place.path))
    if found is None:
        raise core.ModelNotFoundError(
            f"There is no model at {place.path!r}: give a directory with config.json, or a GGUF "
            "file."
        )
    return found
