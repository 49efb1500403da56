"""What a served model is and offers, as its clients have to know before they ask."""

from __future__ import annotations

from contextlib import suppress

from core.errors import CoreError, UnsupportedOptionError
from core.extensions import Explaining
from core.models.fingerprint import fingerprint_of
from core.options import GenerateConfig
from core.protocols import Capability
from core.sampling_options import SAMPLING_OPTIONS
from core.support import REFUSABLE
from core.wires.contract import VERSION, Description
from core_server.served import Served

# What belongs to a load or to the machine, and what no operation of this wire carries.
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
    """The description of one model. May read its files, for the fingerprint."""
    model = served.model
    offered = sorted(each.value for each in served.capabilities - _HERE)
    found = ""
    with suppress(CoreError):  # its files may be gone by now
        found = fingerprint_of(model)
    return Description(
        name=served.name,
        wire=VERSION,
        model_type=model.model_type,
        info=model.info,
        capabilities=tuple(offered),
        refused=tuple(sorted(name for name in REFUSABLE if _refuses(served, name))),
        fingerprint=found,
        backend=served.backend,
        choices=tuple(model.choices()) if isinstance(model, Explaining) else (),
    )


def _refuses(served: Served, option: str) -> bool:
    """Whether the model refuses an option that no capability stands for: it is asked.

    A stream begins at its first token, and a call over no rows has none: neither works.
    """
    telling = next(each.telling for each in SAMPLING_OPTIONS if each.name == option)
    config = GenerateConfig(**{option: telling})  # type: ignore[arg-type]
    try:
        if Capability.GENERATE in served.capabilities:
            served.model.generate("a", config).close()
        elif Capability.CLASSIFY in served.capabilities:
            served.model.classify([], config)
        elif Capability.BATCH_GENERATE in served.capabilities:
            served.model.batch_generate([], config)
    except UnsupportedOptionError:
        return True
    return False
