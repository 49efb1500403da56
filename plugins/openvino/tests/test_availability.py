"""Availability, and the processor's instructions, on made-up machines."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

import core
from core_openvino import availability
from core_openvino.backend import OpenVino
from core_runtime import processor


@pytest.fixture(autouse=True)
def _forget_the_import() -> Iterator[None]:
    availability._import_error.cache_clear()
    yield
    availability._import_error.cache_clear()


def test_it_is_available_here() -> None:
    assert availability.unavailable_reason() is None


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    reason = availability.unavailable_reason() or ""
    assert reason.startswith("OpenVINO is not installed. Install it with: pip install")
    assert OpenVino().devices() == ()
    with pytest.raises(core.BackendUnavailableError, match="is not installed"):
        OpenVino().load_model("m.gguf", core.LoadConfig())


@pytest.mark.parametrize("version", ["2025.4.1", "2026.3.0", "2026.5.0", "2027.4", "2026"])
def test_another_release(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    reason = availability.unavailable_reason() or ""
    assert f"OpenVINO {version} is not 2026.4, the release that works here. Run: pip" in reason


@pytest.mark.parametrize("version", ["2026.4.0", "2026.4.1", "2026.4.2.dev1", "2026.4"])
def test_the_release(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    assert availability.unavailable_reason() is None


def test_a_library_that_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: str) -> None:
        raise OSError("GLIBC_2.28 not found")

    monkeypatch.setattr(ctypes, "CDLL", fails)
    reason = availability.unavailable_reason() or ""
    assert "cannot be opened (GLIBC_2.28 not found)" in reason
    assert "use the backend llama_cpp" in reason


def test_a_broken_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "the installation of OpenVINO is broken" in (availability.unavailable_reason() or "")


XEON = """processor\t: 0
model name\t: Intel(R) Xeon(R)
flags\t\t: fpu avx512_bf16 avx512_vnni amx_bf16 amx_int8
vmx flags\t: bf16
processor\t: 1
flags\t\t: fpu
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd bf16 i8mm\n"


@pytest.mark.parametrize(
    ("text", "bfloat16", "int8"),
    [
        (XEON, ("AVX512_BF16", "AMX"), ("AVX512_VNNI", "AMX")),
        (ARM, ("ARM BF16",), ("ARM I8MM",)),
        ("flags : fpu avx2 avx_vnni", (), ("AVX_VNNI",)),
        ("", (), ()),
    ],
)
def test_instructions_as_linux_reports_them(
    tmp_path: Path, text: str, bfloat16: tuple[str, ...], int8: tuple[str, ...]
) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    flags = processor.reported_flags(file)
    assert processor.bfloat16_instructions(flags) == bfloat16
    assert processor.int8_instructions(flags) == int8


def test_instructions_where_linux_does_not_say(tmp_path: Path) -> None:
    assert processor.reported_flags(tmp_path / "cpuinfo") == frozenset()


@pytest.mark.parametrize("permitted", [True, False])
def test_amx_counts_if_linux_lets_this_process_use_it(
    monkeypatch: pytest.MonkeyPatch, permitted: bool
) -> None:
    reported = frozenset({"avx512_bf16", "amx_bf16", "amx_int8", "amx_tile"})
    monkeypatch.setattr(processor, "reported_flags", lambda: reported)
    monkeypatch.setattr(processor, "_may_use_tiles", lambda: permitted)
    flags = processor.cpu_flags.__wrapped__()
    assert flags == (reported if permitted else {"avx512_bf16"})


def test_the_device_names_its_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "cpu_flags", lambda: frozenset({"amx_bf16", "amx_int8"}))
    assert availability.cpu_device().detail == "AMX"
    monkeypatch.setattr(availability, "cpu_flags", lambda: frozenset())
    assert availability.cpu_device().detail == "float32 only"
