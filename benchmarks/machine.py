"""The machine and date of a benchmark."""

from __future__ import annotations

import datetime
import os
import platform
from typing import Any

from core_runtime.processor import cpu_flags, processor_name


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
    name, flags = processor_name(), cpu_flags()
    vectors = next((vector for vector in ("avx512f", "avx2") if vector in flags), "")
    return f"{name} ({vectors.upper().removesuffix('F')})" if vectors else name
