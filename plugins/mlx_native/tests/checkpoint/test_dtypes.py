"""The dtype that is chosen at load, by the device and the family."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_native import availability, loaded
from core_mlx_native.chosen import Choices
from core_runtime.checkpoint.config import load_config

Checkpoint = Callable[..., Path]
EMULATED = ["Apple M1", "Apple M1 Pro", "Apple M2", "Apple M2 Ultra"]
NATIVE = ["Apple M3 Max", "Apple M4", "Apple M10", ""]


def chosen(directory: Path, chip: str, on_gpu: bool = True, **options: str) -> core.Choice:
    config = core.LoadConfig(options=options)
    return Choices.of(config, on_gpu, load_config(directory), chip).dtype.choice


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_float16_where_bfloat16_is_emulated(checkpoint: Checkpoint, family: str) -> None:
    directory = checkpoint(family)
    found = [chosen(directory, chip) for chip in EMULATED]
    assert [choice.value for choice in found] == ["float16"] * len(EMULATED)
    assert "Apple M1 computes bfloat16 in software" in found[0].reason
    assert {chosen(directory, chip).value for chip in NATIVE} == {"bfloat16"}


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "gemma2", "gemma3"])
def test_a_family_that_passes_float16_stays(checkpoint: Checkpoint, family: str) -> None:
    directory = checkpoint(family)
    choice = chosen(directory, "Apple M1")
    assert choice.value == "bfloat16"
    assert "overflows float16" in choice.reason


def test_the_option_wins_and_a_cpu_is_asked_for_none(checkpoint: Checkpoint) -> None:
    directory = checkpoint("llama")
    assert chosen(directory, "Apple M1", dtype="bfloat16").value == "bfloat16"
    assert chosen(directory, "Apple M1", on_gpu=False).value == "float32"


def test_a_load_asks_for_the_chip(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "apple_chip", lambda: "Apple M2")
    model = loaded.load(checkpoint("llama"), core.LoadConfig(), on_gpu=True)
    assert str(model.decoder.dtype) == "mlx.core.float16"


class System:
    """A made-up libc of a Mac."""

    def __init__(self, code: int = 0) -> None:
        self._code = code

    def sysctlbyname(self, key: bytes, name: Any, *_: Any) -> int:
        assert key == b"machdep.cpu.brand_string"
        name.value = b"Apple M2 Max"
        return self._code


@pytest.mark.parametrize(
    ("system", "libc", "name"),
    [
        ("Darwin", System(), "Apple M2 Max"),
        ("Darwin", System(code=-1), ""),
        ("Darwin", object(), ""),
        ("Linux", System(), ""),
    ],
)
def test_the_chips_name(
    system: str, libc: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: libc)
    assert availability.apple_chip() == name
