"""How fast a multiple-choice task is answered, beside ``mlx_lm.evaluate``; what ``eval`` adds.

The texts of benchmarks/labelled/topics.jsonl, each with six choices, on SmolLM2-135M in float32.
All run in turns on one machine, MLX behind the same BLAS for us and for mlx-lm, and medians are
compared::

    pip install mlx-lm==0.32.2 lm-eval==0.4.13
    python benchmarks/evaluate.py [--items 64] [--runs 3] [--model DIR] [--json FILE]

``task``: items/s of lm-eval's requests through `core_lm_eval.CoreLM` and through mlx-lm's own
`MLXLM`, and how many of their choices agree. ``overhead``: seconds of ``infer-cli eval`` (its
report, without the start of the program) and of `core.evaluate`, over those of ``model.score`` on
the same pairs, less one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")

from core_mlx_native.cpu.blas import ensure_blas

BLAS = ensure_blas()  # before mlx

import core  # noqa: E402
from benchmarks.classify_parts.contestants import MODELS, fetch  # noqa: E402

TEXTS = Path(__file__).parent / "labelled" / "topics.jsonl"
TEMPLATE = "{question} This text is about"


def items(count: int) -> list[core.Item]:
    """The first texts, each with all labels as choices."""
    rows = [json.loads(line) for line in TEXTS.read_text().splitlines()]
    labels = tuple(sorted({row["label"] for row in rows}))
    return [core.Item(row["text"], (row["label"],), labels) for row in rows[:count]]


def in_turns(calls: dict[str, Callable[[], float]], runs: int) -> dict[str, float]:
    """The median seconds of each call; the first round does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(runs + 1):
        for name, call in calls.items():
            took = call()
            if number:
                seconds[name].append(took)
    return {name: statistics.median(values) for name, values in seconds.items()}


def timed(call: Callable[[], object]) -> float:
    """The seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def task(path: str, asked: Sequence[core.Item], runs: int) -> dict[str, Any]:
    """lm-eval's requests through both."""
    instance = importlib.import_module("lm_eval.api.instance").Instance
    theirs = importlib.import_module("mlx_lm.evaluate").MLXLM(path, use_chat_template=False)
    with core.load_model(path, backend="mlx_cpu", options={"prefix_cache": 0}) as model:
        ours = importlib.import_module("core_lm_eval").CoreLM(model)
        prompts = [TEMPLATE.replace("{question}", item.question) for item in asked]
        requests = [
            instance("loglikelihood", {}, (prompt, f" {choice}"), 0)
            for prompt, item in zip(prompts, asked, strict=True)
            for choice in item.choices
        ]
        found: dict[str, list[tuple[float, bool]]] = {}

        def run(name: str, lm: Any) -> Callable[[], float]:
            return lambda: timed(lambda: found.__setitem__(name, lm.loglikelihood(requests)))

        seconds = in_turns({"core": run("core", ours), "mlx_lm": run("mlx_lm", theirs)}, runs)
    size = len(asked[0].choices)
    best = {name: _best([value for value, _ in values], size) for name, values in found.items()}
    agree = sum(one == other for one, other in zip(best["core"], best["mlx_lm"], strict=True))
    return {
        "items": len(asked),
        "items_per_second": {name: len(asked) / value for name, value in seconds.items()},
        "ratio": seconds["mlx_lm"] / seconds["core"],
        "choices_that_agree": agree,
    }


def _best(values: Sequence[float], size: int) -> list[int]:
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    return [max(range(size), key=group.__getitem__) for group in groups]


def overhead(path: str, asked: Sequence[core.Item], runs: int) -> dict[str, float]:
    """What is spent beside the model's own work."""
    prompting = core.Prompting(TEMPLATE)
    pairs = [
        (prompt, ending)
        for item in asked
        for prompt in [prompting.prompt(item)]
        for ending in prompting.endings(item, prompt)
    ]
    heads, tails = [head for head, _ in pairs], [tail for _, tail in pairs]
    with (
        tempfile.TemporaryDirectory() as folder,
        core.load_model(path, backend="mlx_cpu", options={"prefix_cache": 0}) as model,
    ):
        assert isinstance(model, core.Scoring)
        score = model.score
        seconds = in_turns(
            {
                "score": lambda: timed(lambda: score(heads, tails)),
                "evaluate": lambda: timed(lambda: core.evaluate(model, asked, prompting=prompting)),
                "infer-cli eval": lambda: _of_command(path, asked, Path(folder)),
            },
            runs,
        )
    plain = seconds["score"]
    return {name: value / plain - 1 for name, value in seconds.items() if name != "score"}


def _of_command(path: str, asked: Sequence[core.Item], folder: Path) -> float:
    """The seconds that ``infer-cli eval`` reports for all its rows."""
    import subprocess

    file, report = folder / "items.jsonl", folder / "report.json"
    lines = [
        {"question": item.question, "choices": list(item.choices), "answer": item.answers[0]}
        for item in asked
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    flags = ["--backend", "mlx_cpu", "-O", "prefix_cache=0", "--template", TEMPLATE]
    command = [sys.executable, "-m", "core", "eval", "-m", path, "-i", str(file), *flags]
    out = ["-o", str(folder / "out.jsonl"), "--overwrite", "--report", str(report)]
    subprocess.run([*command, *out], check=True, capture_output=True)
    return float(json.loads(report.read_text())["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=None)
    parser.add_argument("--items", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    path = args.model or fetch(MODELS[0]).directory
    asked = items(args.items)
    found = {
        "task": task(path, asked, args.runs),
        "overhead": overhead(path, asked, args.runs),
        "blas": str(BLAS),
    }
    text = json.dumps(found, indent=1)
    print(text)
    if args.json:
        args.json.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
