"""How much a real BLAS speeds up ``classify`` on Linux CPU, against the one bundled with MLX.

The same call on the same prompts, SmolLM2-135M in float32, each time in a process of its own,
since a BLAS is chosen once per process. The two settings take turns, so that a machine that slows
down meanwhile slows both; the medians are compared. Prints one JSON object. The bundled BLAS
needs about half a minute a round.

    python benchmarks/classify_blas.py [--model DIR] [--prompts 8] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MARK = 25  # the ratio to reach on a machine with two cores
SETTINGS = ("auto", "bundled")  # values of CORE_MLX_BLAS
LABELS = ("finance", "sports", "science", "technology")
TEMPLATE = "{text} This news is about"
SENTENCES = Path(__file__).resolve().parents[1] / "examples" / "headlines.jsonl"


def read_prompts(count: int) -> list[str]:
    """The demo's first prompts; each group of four in its file spans the four labels."""
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()[:count]
    return [TEMPLATE.format(text=json.loads(line)["text"]) for line in lines]


def measure(model_path: Path, prompts: Sequence[str]) -> dict[str, Any]:
    """Time one call in this process: prompts/s, and what was chosen."""
    import core

    with core.load_model(model_path, backend="mlx_cpu", options={"dtype": "float32"}) as model:
        model.classify(["A"], labels=LABELS)  # what is done once is not what is compared
        started = time.perf_counter()
        results = model.classify(prompts, labels=LABELS)
        seconds = time.perf_counter() - started
        choices = model.choices() if isinstance(model, core.Explaining) else ()
    return {
        "prompts_per_second": len(prompts) / seconds,
        "prompt_tokens_per_second": model.metrics.prompt_tokens / seconds,
        "labels": [result.label for result in results],
        "choices": {choice.name: choice.value for choice in choices},
    }


def measure_in_child(setting: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own, with this BLAS."""
    command = [sys.executable, __file__, "--child", "--prompts", str(arguments.prompts)]
    child = subprocess.run(
        [*command, "--model", str(arguments.model)],
        env=os.environ | {"CORE_MLX_BLAS": setting},
        stdout=subprocess.PIPE,
        check=True,
    )
    measured: dict[str, Any] = json.loads(child.stdout)
    return measured


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians of both settings, and their ratio beside the mark."""
    report: dict[str, Any] = {}
    for setting, measured in runs.items():
        speeds = [run["prompts_per_second"] for run in measured]
        report[setting] = {
            "choices": measured[0]["choices"],
            "prompts_per_second": round(statistics.median(speeds), 3),
            "all": [round(speed, 3) for speed in speeds],
            "prompt_tokens_per_second": round(
                statistics.median(run["prompt_tokens_per_second"] for run in measured), 1
            ),
        }
    fast, slow = (report[setting]["prompts_per_second"] for setting in SETTINGS)
    report["ratio"] = round(fast / slow, 1)
    report["mark"] = MARK
    report["same_labels"] = all(
        run["labels"] == runs["auto"][0]["labels"] for measured in runs.values() for run in measured
    )
    return report


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(description="Time classify with and without a real BLAS.")
    parser.add_argument(
        "--model", type=Path, default=cache / "core" / "models" / "smollm2-135m-instruct"
    )
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure both settings in turn and print the comparison; 1 when it is below the mark."""
    arguments = parse_arguments()
    if arguments.child:
        print(json.dumps(measure(arguments.model, read_prompts(arguments.prompts))))
        return 0
    runs: dict[str, list[dict[str, Any]]] = {setting: [] for setting in SETTINGS}
    for _ in range(arguments.rounds):
        for setting in SETTINGS:
            runs[setting].append(measure_in_child(setting, arguments))
    report = {"prompts": arguments.prompts, "cpus": os.cpu_count(), **summary(runs)}
    print(json.dumps(report, indent=2))
    return 0 if report["ratio"] >= MARK else 1


if __name__ == "__main__":
    sys.exit(main())
