"""Saboteurs that load what is broken."""

from __future__ import annotations

import os
from dataclasses import replace

from core.errors import InvalidModelError, ModelNotFoundError, UnsupportedModelError
from core.models.files import read_config_json
from core.options import LoadConfig
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import Reference
from core_conformance.reference.files import CONTEXT_LENGTH
from core_conformance.reference.optional import ReferenceModel

Path = str | os.PathLike[str]


@saboteur(
    "numbers-unread",
    "what config.json holds in the place of a number fails where it is computed with",
)
class NumbersUnread(Reference):
    """Compares what it finds in config.json, whatever that is."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Raises TypeError for a size that is a text."""
        try:
            return super().load_model(path, config)
        except InvalidModelError as error:
            if "max_position_embeddings" not in str(error):
                raise
            raise TypeError("'<' not supported between instances of 'str' and 'int'") from error


@saboteur("weights-at-random", "weights that are not there are drawn")
class WeightsAtRandom(Reference):
    """Begins with random weights, as if it were to be trained."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Loads a model without weights."""
        try:
            return super().load_model(path, config)
        except ModelNotFoundError as error:
            if "no *.safetensors" not in str(error):
                raise
            language = self.language_class(config.context_len or CONTEXT_LENGTH, {})
            return self.model_class(language, config, self.capabilities)


@saboteur(
    "any-kind-will-do",
    "a model of a kind that refusal() refuses is loaded as if it were of the usual one",
)
class AnyKindWillDo(Reference):
    """Asks for the model's kind where it is probed, and forgets it where it is loaded."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Loads whatever has a config.json of the reference, be its model_type another."""
        try:
            return super().load_model(path, config)
        except UnsupportedModelError:
            if read_config_json(path).get("model_type") != "no_such_model":
                raise
            language = self.language_class(config.context_len or CONTEXT_LENGTH, {})
            return self.model_class(language, config, self.capabilities)


@saboteur("adapter-best-effort", "what is not an adapter is left out")
class AdapterBestEffort(Reference):
    """Applies what it finds of an adapter, be that nothing."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Loads a model without its adapter, if its file is missing."""
        adapter = config.adapter_path
        if adapter is not None and os.path.isdir(adapter) and not os.listdir(adapter):
            config = replace(config, adapter_path=None)
        return super().load_model(path, config)
