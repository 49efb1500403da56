"""Backends that do not take every model."""

from __future__ import annotations


class GgufOnly:
    name = "fake_gguf_only"
    protocol = 2
    capabilities: frozenset[str] = frozenset()
    formats = frozenset({"gguf"})

    def available(self) -> bool:
        return True

    def unavailable_reason(self) -> str | None:
        return None

    def load_model(self, path: str, config: object) -> None: ...


class Refuses(GgufOnly):
    name = "fake_refuses"
    formats = frozenset({"safetensors"})

    def refusal(self, path: str) -> str | None:
        return "it has no code for this architecture"


class ProbeRaises(Refuses):
    name = "fake_probe_raises"

    def refusal(self, path: str) -> str | None:
        raise KeyError("hidden_size")


class AskingRaises(Refuses):
    name = "fake_asking_raises"

    def available(self) -> bool:
        raise OSError("no driver")
