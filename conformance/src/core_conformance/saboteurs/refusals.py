"""Saboteurs of the other leg: what is not declared, and not refused as it has to be."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Unpack

from core.capability import Capability
from core.errors import CoreError
from core.options import GenerateConfig, GenerateOptions, LoadConfig
from core.protocols import TokenStream
from core.support import OPTION_NEEDS, unsupported
from core.types import Message, Token
from core_conformance.reference.backend import EVERYTHING, OWN_METHODS, Reference
from core_conformance.reference.optional import METHODS, ReferenceModel
from core_conformance.reference.stream import ReferenceStream
from core_conformance.saboteur import saboteur


class Modest(Reference):
    """Does not declare one capability, and does everything all the same."""

    def __init__(self, undeclared: Capability) -> None:
        super().__init__()
        self.capabilities -= {undeclared}

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> ReferenceModel:
        """With everything declared."""
        return Reference().load_model(path, config)


def _shown_by(capability: Capability) -> set[str]:
    """The checks that see it without needing it."""
    if capability in METHODS | OWN_METHODS:
        return {"identity.optional-protocols"}
    return {"errors.undeclared-options"} if capability in OPTION_NEEDS.values() else set()


for _capability in sorted(EVERYTHING):
    saboteur(
        f"undeclared-{_capability}",
        f"{_capability} is not declared, and is there all the same",
        kills=_shown_by(_capability),
        undeclared=_capability,
    )(partial(Modest, _capability))


class LateStream(ReferenceStream):
    """Refuses when it is read."""

    refusal: CoreError

    def generate(self, *arguments: object) -> Iterator[Token]:
        """Raises."""
        raise self.refusal


class RefusesLate(ReferenceModel):
    """A generator function as ``generate``: nothing of it runs before the first ``next()``."""

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """Looks at nothing yet."""
        stream = LateStream(self.engine, prompt, GenerateConfig(), self.record)
        stream.refusal = unsupported(Capability.GENERATE, self._backend)
        return stream


@saboteur(
    "late-refusal",
    "generate is not declared, and is refused at the first next() instead of at the call",
    undeclared=Capability.GENERATE,
)
class LateRefusal(Reference):
    """Without ``generate``."""

    model_class = RefusesLate

    def __init__(self) -> None:
        super().__init__(without={Capability.GENERATE})


class NotImplementedYet(ReferenceModel):
    """Refuses in its own words."""

    def chat(
        self,
        messages: Sequence[Message],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """Raises what no caller of core expects."""
        raise NotImplementedError("chat")


@saboteur(
    "untyped-refusal",
    "chat is not declared, and is refused with an error that is none of core's",
    undeclared=Capability.CHAT,
)
class UntypedRefusal(Reference):
    """Without ``chat``."""

    model_class = NotImplementedYet

    def __init__(self) -> None:
        super().__init__(without={Capability.CHAT})
