"""How long `infer-cli` takes to start, and to list 1,000 models. Prints JSON.

    python benchmarks/cli_startup.py [--runs N]

Medians of whole processes in seconds, each beside the mark it should stay under.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODELS = 1000
MARKS = {"help": 0.15, "discover": 1.0}  # seconds
# Who installs a program has its byte code; a machine for tests may say that none is kept.
ENVIRONMENT = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
COMMAND = [sys.executable, "-c", "from core_cli import main; main()"]
CONFIG = {
    "model_type": "llama",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
    "quantization": {"bits": 4, "group_size": 64},
}


def main() -> None:
    """Measure both commands and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=11)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as place:
        make_models(Path(place))
        listed = subprocess.run(
            [*COMMAND, "discover", place, "--json"], check=True, capture_output=True
        )
        found = len(json.loads(listed.stdout))
        measured = {
            "help": measure(["--help"], runs),
            "discover": measure(["discover", place, "--json"], runs),
        }
    report = {
        name: {"median_seconds": round(seconds, 4), "mark_seconds": MARKS[name]}
        for name, seconds in measured.items()
    }
    print(json.dumps({"runs": runs, "models_found": found, **report}, indent=2))


def make_models(place: Path) -> None:
    """A tree of model directories with config.json and small weights."""
    for number in range(MODELS):
        directory = place / f"model-{number:04}"
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(CONFIG, indent=2))
        (directory / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")


def measure(arguments: list[str], runs: int) -> float:
    """Median seconds of a process, after one run that warms the caches."""
    return statistics.median([timed(arguments) for _ in range(runs + 1)][1:])


def timed(arguments: list[str]) -> float:
    """Seconds that one process takes from start to end."""
    start = time.perf_counter()
    command = [*COMMAND, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
