"""Saboteurs that load what is broken."""

from __future__ import annotations

import os
from dataclasses import replace

from core.errors import InvalidModelError, ModelNotFoundError
from core.options import LoadConfig
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import Reference
from core_conformance.reference.files import CONTEXT_LENGTH
from core_conformance.reference.optional import ReferenceModel

Path = str | os.PathLike[str]


@saboteur(
    "numbers-unread",
    "what config.json holds in the place of a number fails where it is computed with",
    kills={"loading.incomplete-model"},
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


@saboteur(
    "weights-at-random",
    "weights that are not there are drawn",
    kills={"loading.incomplete-model"},
)
class WeightsAtRandom(Reference):
    """Begins with random weights, as if it were to be trained."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Loads a model without weights."""
        try:
            return super().load_model(path, config)
        except ModelNotFoundError as error:
            if "no *.safetensors" not in str(error):
                raise
            language = self.language_class(config.context_len or CONTEXT_LENGTH)
            return self.model_class(language, config, self.capabilities)


@saboteur(
    "adapter-best-effort",
    "what is no adapter is left out",
    kills={"loading.broken-adapter"},
)
class AdapterBestEffort(Reference):
    """Applies the tensors of an adapter that it knows, be that none."""

    def load_model(self, path: Path, config: LoadConfig) -> ReferenceModel:
        """Loads a model without its adapter, when there is something else in its place."""
        adapter = config.adapter_path
        if adapter is not None and os.path.exists(adapter):
            config = replace(config, adapter_path=None)
        return super().load_model(path, config)
