"""The line that says what a backend is for on a CPU."""

from __future__ import annotations

from core_runtime.choices import SUITS_BULK, SUITS_CHAT


def test_each_of_the_two_names_the_other() -> None:
    assert SUITS_BULK.name == SUITS_CHAT.name == "suits"
    assert "classify" in SUITS_BULK.value
    assert "chat" in SUITS_CHAT.value
    assert "llama_cpp" in SUITS_BULK.reason
    assert "GGUF" in SUITS_BULK.reason
    assert "mlx_cpu" in SUITS_CHAT.reason
    assert "safetensors" in SUITS_CHAT.reason
