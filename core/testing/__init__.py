"""A fake model for the tests of an application, which returns the answers that a test sets.

::

    model = core.testing.FakeModel({"The capital of France is": " Paris."})
    assert model.batch_generate(["The capital of France is"])[0].text == " Paris."
    assert model.calls[0].prompts == ("The capital of France is",)

It conforms to the contract of every backend (streams, stop strings, cancel, limits, typed errors),
so an application can rely on its behaviour. See docs/testing_your_application.md.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Literal, TypeAlias

from core.errors import (
    InvalidModelError,
    ModelNotFoundError,
    UnsupportedModelError,
    UnsupportedOptionError,
)
from core.kit.support import refuse_load_options
from core.models.files import read_config_json
from core.options import LoadConfig
from core.protocols import PROTOCOL_VERSION
from core.testing.encoder import ENCODING, FakeEncoder
from core.testing.model import FakeModel, capabilities
from core.testing.reading import CONTEXT_LENGTH, NAME, Call
from core.testing.script import Answers, Errors, Labels

Fake: TypeAlias = FakeModel | FakeEncoder

__all__ = ["Call", "FakeBackend", "FakeEncoder", "FakeModel", "write_model"]

_LENGTH = "max_position_embeddings"


class FakeBackend:
    """A `core.Backend` for ``core.register``; each load makes a `FakeModel` of these arguments.

    With ``encoder=True`` it makes a `FakeEncoder` of ``labels`` and ``errors``.
    ``name`` is the backend that the application requests; a plugin's backend with that name is
    replaced in this process. It only loads models from `write_model`. ``models`` are the loaded
    ones, including closed ones; ``calls`` are all of their calls.
    """

    protocol = PROTOCOL_VERSION
    formats = frozenset({"safetensors"})

    def __init__(
        self,
        answers: Answers = "",
        *,
        labels: Labels | None = None,
        errors: Errors | None = None,
        name: str = NAME,
        encoder: bool = False,
    ) -> None:
        self.name = name
        self.capabilities = ENCODING if encoder else capabilities(labels)
        self.models: list[Fake] = []
        self._answers, self._labels, self._errors = answers, labels, errors
        self._encoder = encoder

    @property
    def calls(self) -> list[Call]:
        """The calls of all models, the first model's first."""
        return [call for model in self.models for call in model.calls]

    def available(self) -> bool:
        """Return True."""
        return True

    def unavailable_reason(self) -> str | None:
        """Return None."""
        return None

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> Fake:
        """Return a new model for each load. Raises `ModelError` and `OptionError`."""
        refuse_load_options(config, self.name, self.capabilities)
        if config.gpu_layers > 0:
            raise UnsupportedOptionError("gpu_layers", self.name)

        length = _context_length(path)
        model = self._model(config.context_len or length, config.context_overflow)
        self.models.append(model)
        return model

    def _model(self, length: int, overflow: Literal["stop", "rotate"]) -> Fake:
        labels, errors, name = self._labels, self._errors, self.name
        if self._encoder:
            return FakeEncoder(labels, errors=errors, context_length=length, name=name)
        return FakeModel(
            self._answers,
            labels=labels,
            errors=errors,
            context_length=length,
            context_overflow=overflow,
            name=name,
        )


def write_model(directory: str | os.PathLike[str], context_length: int = CONTEXT_LENGTH) -> Path:
    """Make a model directory for `FakeBackend`, with two small files, and return its path."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": NAME, _LENGTH: context_length}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    # An empty safetensors file: the header's length, and the header.
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    return folder


def _context_length(directory: str | os.PathLike[str]) -> int:
    """Return the context length of a model that `write_model` made, in tokens."""
    config = read_config_json(directory)
    kind, length = config.get("model_type"), config.get(_LENGTH)

    if kind != NAME:
        raise UnsupportedModelError(
            f"FakeBackend loads what core.testing.write_model() makes: {os.fspath(directory)!r} is "
            f"a model of type {kind!r}."
        )

    if not isinstance(length, int) or length < 1:
        raise InvalidModelError(
            f"The config.json of {os.fspath(directory)!r} has no usable {_LENGTH}. Make the model "
            "again with core.testing.write_model()."
        )

    if not any(Path(directory).expanduser().glob("*.safetensors")):
        raise ModelNotFoundError(
            f"{os.fspath(directory)!r} has no *.safetensors file. Make the model again with "
            "core.testing.write_model()."
        )
    return length
