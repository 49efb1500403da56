"""Description of a served model and its capabilities, for clients to read before any call."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from core.errors import CoreError, UnsupportedOptionError
from core.extensions import Explaining
from core.kit.support import REFUSABLE
from core.models.fingerprint import fingerprint_of
from core.options import GenerateConfig
from core.protocols import Capability
from core.sampling_options import SAMPLING_OPTIONS
from core_server.served import Served
from core_wires.contract import VERSION, Description

# Capabilities of a load or of the machine, and those without an operation in this API.
_HERE = frozenset(
    {
        Capability.ROTATE,
        Capability.ADAPTERS,
        Capability.ADAPTING,
        Capability.MODEL_PROBE,
        Capability.MODEL_FINDING,
        Capability.DEVICE_REPORTING,
        Capability.TRAINABLE,
        Capability.DECLARING,
        Capability.ASYNCHRONOUS,
    }
)


def describe(served: Served) -> Description:
    """Return the description of one model. May read its files, for the fingerprint."""
    model = served.model
    offered = sorted(capability.value for capability in served.capabilities - _HERE)
    fingerprint = ""
    with suppress(CoreError):  # its files may be gone by now
        fingerprint = fingerprint_of(model)
    return Description(
        name=served.name,
        wire=VERSION,
        model_type=model.model_type,
        info=model.info,
        capabilities=tuple(offered),
        refused=tuple(sorted(name for name in REFUSABLE if _refuses(served, name))),
        fingerprint=fingerprint,
        backend=served.backend,
        choices=tuple(model.choices()) if isinstance(model, Explaining) else (),
    )


def _refuses(served: Served, option: str) -> bool:
    """Return whether the model refuses an option that no capability describes, by trying it.

    Neither attempt computes: a stream begins at its first token, and a call over no rows is empty.
    """
    telling = next(known.telling for known in SAMPLING_OPTIONS if known.name == option)
    config = GenerateConfig(**{option: telling})  # type: ignore[arg-type]
    try:
        if Capability.GENERATE in served.capabilities:
            served.model.generate("a", config).close()
        elif Capability.CLASSIFY in served.capabilities:
            served.model.classify([], config)
        elif Capability.LABEL_SENTENCES in served.capabilities:
            served.model.classify([], replace(config, labels=("a",)))
        elif Capability.BATCH_GENERATE in served.capabilities:
            served.model.batch_generate([], config)
    except UnsupportedOptionError:
        return True
    return False
