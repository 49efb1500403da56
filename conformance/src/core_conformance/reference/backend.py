"""The backend ``reference``: keeps every clause of the contract, in plain Python and at once.

``Reference(without={...})`` does not declare some capabilities, and then refuses them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TypeVar

from core.errors import UnsupportedOptionError
from core.kit.support import PROTOCOLS, refuse_load_options
from core.options import LoadConfig
from core.protocols import PROTOCOL_VERSION, Capability
from core.types import Device, DiscoveredModel
from core_conformance.reference import files
from core_conformance.reference.language import Language
from core_conformance.reference.optional import ReferenceModel

Kind = TypeVar("Kind")

EVERYTHING = frozenset(Capability) - {Capability.LABEL_SENTENCES}  # see `Sentences`
METHODS = {
    capability: tuple(name for name in vars(protocol) if not name.startswith("_"))
    for capability, protocol in PROTOCOLS.items()
}
"""The methods of each optional protocol."""
_OWN = {Capability.MODEL_PROBE, Capability.MODEL_FINDING, Capability.DEVICE_REPORTING}


class Reference:
    """See `core.Backend`. Undeclared methods are really absent, also to ``isinstance``."""

    name = "reference"
    protocol = PROTOCOL_VERSION
    formats = frozenset({files.FORMAT})
    everything = EVERYTHING
    model_class: type[ReferenceModel] = ReferenceModel  # parts that a saboteur may replace
    language_class: type[Language] = Language

    def __init__(self, without: Collection[Capability] = ()) -> None:
        self.capabilities = self.everything.difference(without)
        self.__class__ = self._without(type(self), _OWN)

    def available(self) -> bool:
        """Return True: plain Python runs everywhere."""
        return True

    def unavailable_reason(self) -> str | None:
        """Return None: the backend is available."""
        return None

    def devices(self) -> Sequence[Device]:
        """Return the CPU of this computer, the only device."""
        return (Device("cpu", "cpu", detail="plain Python"),)

    def refusal(self, path: str | os.PathLike[str], /) -> str | None:
        """Return the reason why this backend cannot load a model, by its config.json.

        None if it can.
        """
        return files.refusal(path)

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        """Return the reference model that a path is, by its config.json.

        None for any other path.
        """
        return files.describe(path)

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> ReferenceModel:
        """Load a model that `write_model` made. Raises `ModelError` and `OptionError`."""
        refuse_load_options(config, self.name, self.capabilities)
        if config.gpu_layers > 0:
            advice = "It computes on the CPU: leave it at -1 or 0."
            raise UnsupportedOptionError("gpu_layers", self.name, advice)

        length = files.read_model(path)  # a longer context is as good: nothing was trained
        # The model's class lacks the methods that are not declared.
        adapter = config.adapter_path
        bias = {} if adapter is None else files.read_adapter(adapter)
        model = self._without(self.model_class, METHODS.keys() - _OWN)
        language = self.language_class(config.context_len or length, bias)
        return model(language, config, self.capabilities)

    def _without(self, kind: type[Kind], protocols: Collection[Capability]) -> type[Kind]:
        """Return the class without the methods of undeclared protocols."""
        undeclared = [capability for capability in protocols if capability not in self.capabilities]
        # None is how Python says "not this one", as for __hash__, and isinstance() knows it.
        hidden = {name: None for capability in undeclared for name in METHODS[capability]}
        return type(kind.__name__, (kind,), hidden)
