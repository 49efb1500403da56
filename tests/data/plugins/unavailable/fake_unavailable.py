"""A backend that is installed where it cannot run."""

from __future__ import annotations


class Backend:
    name = "fake_unavailable"
    protocol = 2
    capabilities: frozenset[str] = frozenset()
    formats = frozenset({"safetensors"})

    def available(self) -> bool:
        return False

    def unavailable_reason(self) -> str | None:
        return "it needs a GPU. Use a machine that has one."

    def load_model(self, path: str, config: object) -> None:
        raise AssertionError("an unavailable backend was asked to load a model")
