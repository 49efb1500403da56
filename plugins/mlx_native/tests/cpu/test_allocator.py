"""Freed memory is kept for the next arrays: each case in a process, since that is process-wide."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_native import memory
from core_mlx_native.backend import Cpu

Checkpoint = Callable[..., Path]

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the C library here has no such settings"
)

# Blocks as large as a layer's activations, freed and asked for again, as MLX does.
SCRIPT = """
import ctypes, json, resource
from core_mlx_native import memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
SIZE = 6 << 20
def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        blocks = [libc.malloc(SIZE) for _ in range(10)]
        for block in blocks:
            ctypes.memset(block, 1, SIZE)
        for block in blocks:
            libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
kept = memory.keep_freed_memory()
faults(2)
again, held = faults(10), resident()
memory.give_back()
found = {"kept": kept, "faults": again, "given_back": held - resident()}
print(json.dumps(found))
"""
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def run(**environment: str) -> dict[str, Any]:
    clean = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, env={**clean, **environment}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def test_the_same_pages_serve_again_and_are_given_back_when_asked() -> None:
    facts = run()
    assert facts["kept"]
    assert facts["faults"] < 100  # of 15,360 pages touched ten times
    assert facts["given_back"] > 50 << 20


@pytest.mark.parametrize(
    "own",
    [
        {"MALLOC_MMAP_THRESHOLD_": "131072"},
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"},
    ],
)
def test_settings_of_the_user_stay(own: dict[str, str]) -> None:
    facts = run(**own)
    assert not facts["kept"]
    assert facts["faults"] > 100_000


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    memory.keep_freed_memory.cache_clear()
    try:
        assert not memory.keep_freed_memory()
        memory.give_back()
    finally:
        memory.keep_freed_memory.cache_clear()


def test_a_load_keeps_it_and_a_close_gives_it_back(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(memory, "keep_freed_memory", lambda: seen.append("kept"))
    monkeypatch.setattr(memory, "give_back", lambda: seen.append("given back"))
    with Cpu().load_model(checkpoint(), core.LoadConfig()):
        assert seen == ["kept"]
    assert seen == ["kept", "given back"]
