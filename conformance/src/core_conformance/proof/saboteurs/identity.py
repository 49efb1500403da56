"""Saboteurs that say something wrong about themselves, and that do not refuse what they must."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from core.errors import CoreError
from core.kit.support import unsupported
from core.options import (
    GenerateConfig,
    LoadConfig,
)
from core.protocols import Capability, TokenStream
from core.types import Choice, Conversation, Device, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import EVERYTHING, Reference
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream


@saboteur("name-with-a-blank", "the name ends in a blank, so that the typed name does not match")
class NameWithBlank(Reference):
    name = "reference "


@saboteur("protocol-as-text", "protocol is a str")
class ProtocolAsText(Reference):
    protocol = "1"  # type: ignore[assignment]  # the fault


@saboteur("capabilities-a-set", "capabilities can be changed")
class CapabilitiesASet(Reference):
    def __init__(self) -> None:
        super().__init__()
        self.capabilities = set(self.capabilities)  # type: ignore[assignment]  # the fault


@saboteur("formats-left-behind", "formats does not list what load_model has learned to read")
class FormatsLeftBehind(Reference):
    formats = frozenset({"gguf"})


@saboteur(
    "reason-although-available", "unavailable_reason() has words for a backend that is available"
)
class ReasonAlthoughAvailable(Reference):
    def unavailable_reason(self) -> str | None:
        return "ready"


@saboteur("device-of-no-kind", "a device's kind is made up")
class DeviceOfNoKind(Reference):
    def devices(self) -> Sequence[Device]:
        return (Device("cuda:0", "cuda"),)  # type: ignore[arg-type]  # the fault


@saboteur("choice-without-reason", "a choice is not explained")
class ChoiceWithoutReason(ReferenceModel):
    def choices(self) -> Sequence[Choice]:
        return tuple(Choice(choice.name, choice.value, "") for choice in super().choices())


@saboteur("declares-more", "a model declares what its backend does not")
class DeclaresMore(Reference):
    def __init__(self) -> None:
        super().__init__(without={Capability.TRAINABLE})

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> ReferenceModel:
        model = super().load_model(path, config)
        model.declared = lambda: frozenset(Capability)  # type: ignore[method-assign]
        return model


class Modest(Reference):
    """A backend that does not declare one capability, and does everything all the same."""

    def __init__(self, undeclared: Capability) -> None:
        super().__init__()
        self.capabilities -= {undeclared}

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> ReferenceModel:
        model, declared = Reference().load_model(path, config), self.capabilities
        model.declared = lambda: declared  # type: ignore[method-assign]
        return model


for _capability in sorted(EVERYTHING):
    saboteur(
        f"undeclared-{_capability}",
        f"{_capability} is not declared, and is there all the same",
        undeclared=_capability,
    )(partial(Modest, _capability))


class LateStream(ReferenceStream):
    """A stream that refuses when it is read."""

    refusal: CoreError

    def generate(self, *arguments: object) -> Iterator[Token]:
        raise self.refusal


class RefusesLate(ReferenceModel):
    """Has a generator function as ``generate``: nothing of it runs before the first ``next()``."""

    def generate(self, prompt: str, *config: Any, **options: Any) -> TokenStream:
        stream = LateStream(self.engine, prompt, GenerateConfig(), self.record)
        stream.refusal = unsupported(Capability.GENERATE, self._backend)
        return stream


@saboteur(
    "late-refusal",
    "generate is not declared, and is refused at the first next() instead of at the call",
    undeclared=Capability.GENERATE,
)
class LateRefusal(Reference):
    model_class = RefusesLate

    def __init__(self) -> None:
        super().__init__(without={Capability.GENERATE})


class NotImplementedYet(ReferenceModel):
    """A model that refuses chat with an error of its own."""

    def chat(self, messages: Conversation, *config: Any, **options: Any) -> TokenStream:
        raise NotImplementedError("chat")


@saboteur(
    "untyped-refusal",
    "chat is not declared, and is refused with an error that is not one of core's",
    undeclared=Capability.CHAT,
)
class UntypedRefusal(Reference):
    model_class = NotImplementedYet

    def __init__(self) -> None:
        super().__init__(without={Capability.CHAT})
