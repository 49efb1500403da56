"""What ``import core`` costs: milliseconds of a bare interpreter, and of one that imports it.

Prints one JSON object; ``added_ms`` is the difference of the medians. The mark is 30 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def milliseconds(code: str) -> float:
    """Wall time of one fresh, isolated interpreter that runs this code."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
    return (time.perf_counter() - start) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--runs", type=int, default=21, help="runs of each; default 21")
    runs = parser.parse_args().runs
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
    milliseconds(path + "; import core")  # compiles the bytecode
    # In turns, so that a slow moment of the machine falls on both.
    pairs = [(milliseconds(path), milliseconds(path + "; import core")) for _ in range(runs)]
    bare, with_core = (statistics.median(column) for column in zip(*pairs, strict=True))
    result = {"runs": runs, "bare_ms": bare, "core_ms": with_core, "added_ms": with_core - bare}
    print(json.dumps({name: round(value, 2) for name, value in result.items()}))


if __name__ == "__main__":
    main()
