"""The machine and date of a benchmark."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import Any


def describe(threads: int) -> dict[str, Any]:
    """Return processor, cores, memory, load and date."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "memory_bytes": memory,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
        "MLX_DISABLE_COMPILE": os.environ.get("MLX_DISABLE_COMPILE"),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def caption(machine: dict[str, Any]) -> str:
    """Return a description in one line."""
    gpu = f"{machine['gpu']}, " if machine.get("gpu") else ""
    memory = machine["memory_bytes"] / 2**30
    return (
        f"{gpu}{machine['processor']}, {machine['cores']} cores, {memory:.0f} GiB, "
        f"{machine['system']}, {machine['date']}"
    )


def processor() -> str:
    """The processor's name for itself, with the vector instructions that matter for its speed."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
    }
    flags = facts.get("flags", "").split()
    vectors = next((name for name in ("avx512f", "avx2") if name in flags), "")
    name = facts.get("model name", platform.machine())
    return f"{name} ({vectors.upper().removesuffix('F')})" if vectors else name
