"""Saboteurs that say something wrong about themselves."""

from __future__ import annotations

from collections.abc import Sequence

from core.capability import Capability
from core.types import Choice, Device
from core_conformance.reference.backend import Reference
from core_conformance.reference.optional import ReferenceModel
from core_conformance.saboteur import saboteur


@saboteur(
    "name-with-a-blank",
    "the name ends in a blank, so that nobody who types it finds it",
    kills={"identity.name", "identity.registered"},
)
class NameWithBlank(Reference):
    """Pasted from somewhere."""

    name = "reference "


@saboteur("protocol-as-text", "protocol is a str", kills={"identity.protocol"})
class ProtocolAsText(Reference):
    """Read from a configuration file."""

    protocol = "1"  # type: ignore[assignment]  # the fault


@saboteur("capabilities-a-set", "capabilities can be changed", kills={"identity.capabilities"})
class CapabilitiesASet(Reference):
    """A set is no frozenset."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = set(self.capabilities)  # type: ignore[assignment]  # the fault


@saboteur(
    "formats-left-behind",
    "formats does not list what load_model has learned to read",
    kills={"identity.formats"},
)
class FormatsLeftBehind(Reference):
    """Copied from another backend."""

    formats = frozenset({"gguf"})


@saboteur(
    "reason-although-available",
    "unavailable_reason() has words for a backend that is available",
    kills={"identity.availability"},
)
class ReasonAlthoughAvailable(Reference):
    """Always says something."""

    def unavailable_reason(self) -> str | None:
        """A status, not a reason."""
        return "ready"


@saboteur(
    "another-name",
    "the entry point and the backend do not agree on its name",
    kills={"identity.registered"},
)
class AnotherName(Reference):
    """Renamed in one place only."""

    name = "reference-renamed"


@saboteur(
    "declares-training",
    "a capability is declared whose methods are not there",
    kills={"identity.optional-protocols"},
)
class DeclaresTraining(Reference):
    """Planned for the next release."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities |= {Capability.TRAINABLE}


@saboteur("device-of-no-kind", "a device's kind is made up", kills={"identity.devices"})
class DeviceOfNoKind(Reference):
    """Hands on what its driver says."""

    def devices(self) -> Sequence[Device]:
        """A kind that core does not know."""
        return (Device("cuda:0", "cuda"),)  # type: ignore[arg-type]  # the fault


@saboteur("choice-without-reason", "a choice is not explained", kills={"identity.choices"})
class ChoiceWithoutReason(ReferenceModel):
    """Says what and not why."""

    def choices(self) -> Sequence[Choice]:
        """No reasons."""
        return tuple(Choice(choice.name, choice.value, "") for choice in super().choices())
