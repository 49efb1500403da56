"""Measure the time and peak memory of a load, compared with mlx-lm. Prints JSON.

Gemma-3-270M in float32, by ``core.load_model`` (mlx_cpu) and by ``mlx_lm.load``, each time in a
process of its own; the two take turns, and the medians are compared. Libraries are imported before
the clock starts, and the files are in the page cache. Needs mlx-lm beside the
infercore-mlx-native::

    pip install mlx-lm==0.32.2
    python benchmarks/load.py [--model DIR] [--runs 5]

``peak_over_final`` compares with the size of the loaded weights: ``mlx`` is what MLX's allocator
held at most, ``process`` by how much the resident memory of the process grew at most.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MARKS = {"ratio": 1.2, "peak_over_final": 1.15}
LIBRARIES = ("core", "mlx_lm")


def core_loader() -> Callable[[Path], object]:
    """Import what a load needs; the load itself."""
    import core
    from core_mlx_native.cpu.blas import ensure_blas

    ensure_blas()  # before mlx
    importlib.import_module("core_mlx_native.loading")
    return lambda path: core.load_model(path, backend="mlx_cpu", options={"dtype": "float32"})


def mlx_lm_loader() -> Callable[[Path], object]:
    """Do the same with mlx-lm."""
    mlx_lm: Any = importlib.import_module("mlx_lm")
    importlib.import_module("mlx_lm.models.gemma3_text")  # else imported by the first load
    return lambda path: mlx_lm.load(str(path))


LOADERS = {"core": core_loader, "mlx_lm": mlx_lm_loader}


def measure(library: str, path: Path) -> dict[str, float]:
    """Load once in this process: seconds, and bytes."""
    load = LOADERS[library]()
    import mlx.core as mx

    resident = resident_bytes("VmRSS")
    forget_peak()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    started = time.perf_counter()
    model = load(path)
    seconds = time.perf_counter() - started
    final = mx.get_active_memory() - before
    measured = {
        "seconds": seconds,
        "final_bytes": final,
        "mlx": (mx.get_peak_memory() - before) / final,
        "process": (resident_bytes("VmHWM") - resident) / final,
    }
    del model
    return measured


def resident_bytes(field: str) -> int:
    """VmRSS, the resident memory now, or VmHWM, its peak, of this process (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {field}: this benchmark runs on Linux.")


def forget_peak() -> None:
    """Set VmHWM back to what is resident now (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5")


def measure_in_child(library: str, path: Path) -> dict[str, float]:
    """Do the same in a fresh process."""
    command = [sys.executable, __file__, "--model", str(path), "--child", library]
    child = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    measured: dict[str, float] = json.loads(child.stdout.splitlines()[-1])
    return measured


def summary(runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Medians of one library's runs."""

    def median(name: str) -> float:
        return round(statistics.median(run[name] for run in runs), 3)

    return {
        "median_seconds": median("seconds"),
        "all_seconds": [round(run["seconds"], 3) for run in runs],
        "final_bytes": int(median("final_bytes")),
        "peak_over_final": {"mlx": median("mlx"), "process": median("process")},
    }


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(description="Time a load, beside mlx-lm's.")
    parser.add_argument("--model", type=Path, default=cache / "core" / "models" / "gemma-3-270m")
    parser.add_argument("--runs", type=int, default=5, help="runs of each; default 5")
    parser.add_argument("--child", choices=LIBRARIES, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure both in turn and print the comparison; 1 when a mark is missed."""
    arguments = parse_arguments()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.model)))
        return 0
    runs: dict[str, list[dict[str, float]]] = {library: [] for library in LIBRARIES}
    for number in range(arguments.runs + 1):
        for library in LIBRARIES:
            measured = measure_in_child(library, arguments.model)
            if number:  # the first round fills the page cache and compiles bytecode
                runs[library].append(measured)
    report: dict[str, Any] = {library: summary(runs[library]) for library in LIBRARIES}
    ratio = report["core"]["median_seconds"] / report["mlx_lm"]["median_seconds"]
    report |= {"ratio": round(ratio, 3), "marks": MARKS}
    print(json.dumps({"runs": arguments.runs, "cpus": os.cpu_count(), **report}, indent=2))
    peak = max(report["core"]["peak_over_final"].values())
    return int(ratio > MARKS["ratio"] or peak > MARKS["peak_over_final"])


if __name__ == "__main__":
    sys.exit(main())
