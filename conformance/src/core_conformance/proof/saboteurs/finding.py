"""Saboteurs that load models correctly, and describe them wrongly to discovery."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from core.errors import ModelError
from core.models.files import read_config_json
from core.protocols import Capability
from core.types import DiscoveredModel
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import Reference


@saboteur("describes-nothing", "describe_model() knows no model, not even one that loads")
class DescribesNothing(Reference):
    """Has the method, which is still to be written."""

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        """Return None for every path."""
        return None


@saboteur("describes-where-links-lead", "a description is by another path than was asked for")
class DescribesWhereLinksLead(Reference):
    """Follows links first, and forgets where it came from."""

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        """Return the model, by its path with all links resolved."""
        described = super().describe_model(path)
        linked = os.path.islink(path)
        return described and replace(described, path=os.path.realpath(path) if linked else path)


@saboteur(
    "describes-another-format", "a description has a format that the backend's formats do not name"
)
class DescribesAnotherFormat(Reference):
    """Names the version of its format as well, here and not in formats."""

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        """Return the model, in a format of that name."""
        described = super().describe_model(path)
        return described and replace(described, format="safetensors-1")


@saboteur("describes-a-problem", "a sound model has a problem")
class DescribesAProblem(Reference):
    """Warns of what its loader takes."""

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        """Return the model, with a problem."""
        described = super().describe_model(path)
        return described and replace(described, problem="made by an older version")


@saboteur("describing-raises", "describe_model() raises for a path that is gone")
class DescribingRaises(Reference):
    """Looks at a path as if it could not vanish."""

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        """Raises FileNotFoundError for a path where nothing is."""
        os.stat(path)
        return super().describe_model(path)


@saboteur("describes-any-directory", "an empty directory is described as a model")
class DescribesAnyDirectory(Reference):
    """Takes every directory for a model, which lacks its files perhaps."""

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        """Return a model for each directory; one with a problem, where there is nothing in it."""
        described = super().describe_model(path)
        if described is None and os.path.isdir(path) and not os.listdir(path):
            return DiscoveredModel(path, "", 0, 0, 0, "safetensors", 0, "", problem="no files")
        return described


@saboteur(
    "describes-other-kinds",
    "a model of another kind, which does not load, is described as a sound one",
)
class DescribesOtherKinds(Reference):
    """Looks for the file config.json, and not into it."""

    def __init__(self) -> None:
        super().__init__(without={Capability.MODEL_PROBE})

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        """Return a model for each directory with a config.json that names a kind."""
        with suppress(ModelError):
            kind = str(read_config_json(path).get("model_type", ""))
            return DiscoveredModel(path, kind, 0, 0, 0, "safetensors", 0, "") if kind else None
        return None
