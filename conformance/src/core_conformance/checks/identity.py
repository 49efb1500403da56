"""Checks of a backend's own words: its name, protocol, capabilities, devices and choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.errors import BackendError
from core.kit.support import PROTOCOLS
from core.models.discovery import described_by
from core.models.files import resolve_path
from core.models.locating import recognised
from core.protocols import PROTOCOL_VERSION, Capability
from core.registry import REGISTRY
from core.types import Choice, Device
from core_conformance.checking.applies import OF_BACKENDS
from core_conformance.checking.check import check, must
from core_conformance.checking.subject import Subject


@check("identity.name", "A backend's name MUST be a non-empty string without blanks around it.")
def name(subject: Subject) -> None:
    value: object = subject.backend.name
    sound = isinstance(value, str) and value != "" and value == value.strip()
    must(sound, f"name is {value!r}: expected the text by which users choose the backend")


@check("identity.protocol", "A backend MUST state the version of the contract it is written for.")
def protocol(subject: Subject) -> None:
    value: object = subject.backend.protocol
    must(
        type(value) is int and value == PROTOCOL_VERSION,
        f"protocol is {value!r}, and core's PROTOCOL_VERSION is {PROTOCOL_VERSION}: state it as "
        "a plain int",
    )


@check("identity.capabilities", "`capabilities` MUST be a frozenset of core.Capability.")
def capabilities(subject: Subject) -> None:
    value: object = subject.backend.capabilities
    must(isinstance(value, frozenset), f"capabilities is a {type(value).__name__}, not a frozenset")
    items: frozenset[object] = subject.backend.capabilities
    strange = [item for item in items if not isinstance(item, Capability)]
    must(not strange, f"capabilities holds {strange!r}: only members of core.Capability count")


@check(
    "identity.formats",
    "`formats` MUST be a frozenset with the names of the formats that the backend reads: that of "
    "the model under test among them where core knows it, or `describe_model` its own.",
)
def formats(subject: Subject) -> None:
    value: object = subject.backend.formats
    must(isinstance(value, frozenset), f"formats is a {type(value).__name__}, not a frozenset")
    read: frozenset[Any] = subject.backend.formats
    strange = [item for item in read if not isinstance(item, str) or not item]
    must(not strange, f"formats holds {strange!r}: names alone count")
    location = resolve_path(subject.path)
    known = recognised(location)
    described, _ = described_by(subject.backend, location)
    must(
        not known or not read.isdisjoint(known) or described is not None,
        f"formats is {sorted(read)}, and the backend loads a model that core reads as "
        f"{' or '.join(known)}: core.load_model would not let it",
    )


@check(
    "identity.availability",
    "`unavailable_reason()` MUST be None exactly when `available()` is True, and words otherwise.",
)
def availability(subject: Subject) -> None:
    available: object = subject.backend.available()
    reason: object = subject.backend.unavailable_reason()
    must(isinstance(available, bool), f"available() returned {available!r}: expected a bool")
    if available:
        must(reason is None, f"available() is True, but unavailable_reason() returned {reason!r}")
    else:
        sound = isinstance(reason, str) and reason != ""
        must(
            sound,
            f"available() is False, but unavailable_reason() is {reason!r}: return the reason",
        )


@check(
    "identity.registered",
    "A backend MUST be found in core's registry under its own name.",
)
def registered(subject: Subject) -> None:
    name = subject.backend.name
    listed = [entry.name for entry in REGISTRY.entries()]
    must(
        name in listed,
        f"no entry point of the group core.backends is called {name!r} (found: {listed}): the "
        "entry point, or the name given to core.register(), must equal the backend's `name`",
    )
    try:
        known = REGISTRY.get(name)
    except BackendError as error:
        must(False, f"the backend {name!r} is registered but cannot be loaded: {error}")
        return
    must(known.name == name, f"the backend registered as {name!r} has the name {known.name!r}")


@check(
    "identity.optional-protocols",
    "The answer of isinstance for an optional protocol MUST agree with `capabilities`.",
)
def optional_protocols(subject: Subject) -> None:
    holders: dict[str, object] = {"backend": subject.backend, "model": subject.model}

    # Methods and declaration have to agree, in both directions.
    for capability, kind in PROTOCOLS.items():
        what = "backend" if capability in OF_BACKENDS else "model"
        declared, there = subject.declares(capability), isinstance(holders[what], kind)
        must(
            declared or not there,
            f"the {what} has the methods of {kind.__name__}, and {capability!r} is not "
            "declared: declare it or remove them",
        )
        must(
            there or not declared,
            f"{capability!r} is declared, but the {what} lacks methods of {kind.__name__}",
        )


@check(
    "identity.declared",
    "The capabilities a model declares MUST be a frozenset of core.Capability, of which "
    "the backend names all, and stay the same.",
    Capability.DECLARING,
)
def declared(subject: Subject) -> None:
    model: Any = subject.model
    value: object = model.declared()
    must(isinstance(value, frozenset), f"declared() is a {type(value).__name__}, not a frozenset")
    strange = [item for item in model.declared() if not isinstance(item, Capability)]
    must(not strange, f"declared() holds {strange!r}: only members of core.Capability count")
    beyond = sorted(model.declared() - subject.backend.capabilities)
    must(not beyond, f"declared() holds {beyond}, which the backend's capabilities lack")
    must(Capability.DECLARING in model.declared(), "declared() leaves 'declaring' itself out")
    must(model.declared() == value, f"declared() is {model.declared()}, and was {value}")


@check(
    "identity.devices",
    "`devices()` MUST list core.Device objects that say what each is.",
    Capability.DEVICE_REPORTING,
)
def devices(subject: Subject) -> None:
    backend: Any = subject.backend
    value: object = backend.devices()
    must(
        isinstance(value, Sequence), f"devices() returned a {type(value).__name__}, not a sequence"
    )
    if subject.backend.available():
        must(bool(value), "devices() is empty, but the backend is available: list what it runs on")
    for device in backend.devices():
        must(isinstance(device, Device), f"devices() lists {device!r}, not a core.Device")
        must(bool(device.name), f"{device!r} has no name")
        must(
            device.kind in ("cpu", "gpu"),
            f"{device!r} has an unknown kind: expected 'cpu' or 'gpu'",
        )
        must(device.memory_bytes >= 0, f"{device!r} has negative memory")


@check(
    "identity.choices",
    "`choices()` MUST give what was chosen for the user, the device at least, each with its "
    "reason.",
    Capability.EXPLAINING,
)
def choices(subject: Subject) -> None:
    model: Any = subject.model
    value: Any = model.choices()
    must(
        isinstance(value, Sequence), f"choices() returned a {type(value).__name__}, not a sequence"
    )
    strange = [choice for choice in value if not isinstance(choice, Choice)]
    must(not strange, f"choices() lists {strange!r}, not core.Choice objects")
    names = [choice.name for choice in value]
    must("device" in names, f"choices() lists {names}, and not the device, with the reason for it")
    for choice in value:
        must(bool(choice.name and choice.value), f"{choice!r} does not name what was chosen")
        must(bool(choice.reason), f"the choice {choice.name}={choice.value} has no reason")
