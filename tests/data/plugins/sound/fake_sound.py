"""A backend as a class, from a factory, and as an instance. Loading returns what it was given."""

from __future__ import annotations

from core.protocols import Capability
from core.types import Device

LOADED: list[tuple[str, object]] = []


class Backend:
    name = "fake_sound"
    protocol = 2
    capabilities = frozenset({Capability.GENERATE, Capability.CLASSIFY})
    formats = frozenset({"safetensors", "gguf"})

    def available(self) -> bool:
        return True

    def unavailable_reason(self) -> str | None:
        return None

    def devices(self) -> list[Device]:
        return [Device("a fake processor", "cpu")]

    def load_model(self, path: str, config: object) -> tuple[str, object]:
        LOADED.append((path, config))
        return path, config


def make() -> Backend:
    return Backend()


INSTANCE = Backend()


def hooks() -> None: ...
