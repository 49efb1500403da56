"""How fast a multiple-choice task is answered, beside ``mlx_lm.evaluate``; what ``eval`` adds.

SmolLM2-135M in float32, all in turns on one machine, MLX behind the same BLAS for us and for
mlx-lm; medians are compared. ``labels`` are the texts of benchmarks/labelled/topics.jsonl, each
with the six topics as choices; ``endings`` have HellaSwag's shape: four sentences of one topic, and
four others, one of that topic, as what may follow::

    pip install mlx-lm==0.32.2 lm-eval==0.4.13
    python benchmarks/evaluate.py [--items 64] [--runs 3] [--model DIR] [--json FILE]

Of each: items/s of lm-eval's requests through `core_lm_eval.CoreLM`, through mlx-lm's own `MLXLM`,
and of `core_tasks.evaluate`, and how many of the first two's choices agree. ``overhead``: seconds
of ``infer-cli eval`` (its report, without the start of the program) and of `core_tasks.evaluate`,
over those of ``model.score`` on the same pairs, less one.
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
import core_tasks  # noqa: E402
from benchmarks.classify_parts.contestants import MODELS, fetch  # noqa: E402

TEXTS = Path(__file__).parent / "labelled" / "topics.jsonl"
LABELS, ENDINGS = "{question} This text is about", "{question}"


def labelled(count: int) -> list[core_tasks.Item]:
    """The first texts, each with all labels as choices."""
    rows = [json.loads(line) for line in TEXTS.read_text().splitlines()]
    labels = tuple(sorted({row["label"] for row in rows}))
    return [core_tasks.Item(row["text"], (row["label"],), labels) for row in rows[:count]]


def endings(count: int) -> list[core_tasks.Item]:
    """Four sentences of a topic; a fifth one is right, and three of other topics are wrong."""
    by_label: dict[str, list[str]] = {}
    for line in TEXTS.read_text().splitlines():
        row = json.loads(line)
        by_label.setdefault(row["label"], []).append(row["text"])
    labels, found = sorted(by_label), list[core_tasks.Item]()
    for number in range(count):
        label = labels[number % len(labels)]
        own = [by_label[label][(5 * number + n) % len(by_label[label])] for n in range(5)]
        others = [by_label[other][number % len(by_label[other])] for other in labels]
        wrong = [text for other, text in zip(labels, others, strict=True) if other != label][:3]
        choices = [*wrong[: number % 4], own[4], *wrong[number % 4 :]]
        found.append(core_tasks.Item(" ".join(own[:4]), (own[4],), tuple(choices)))
    return found


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


def task(path: str, asked: Sequence[core_tasks.Item], template: str, runs: int) -> dict[str, Any]:
    """lm-eval's requests through both."""
    instance = importlib.import_module("lm_eval.api.instance").Instance
    theirs = importlib.import_module("mlx_lm.evaluate").MLXLM(path, use_chat_template=False)
    with core.load_model(path, backend="mlx_cpu", options={"prefix_cache": 0}) as model:
        ours = importlib.import_module("core_lm_eval").CoreLM(model)
        prompts = [template.replace("{question}", item.question) for item in asked]
        put = core_tasks.Prompting(template)
        requests = [
            instance("loglikelihood", {}, (prompt, f" {choice}"), 0)
            for prompt, item in zip(prompts, asked, strict=True)
            for choice in item.choices
        ]
        found: dict[str, list[tuple[float, bool]]] = {}

        def run(name: str, lm: Any) -> Callable[[], float]:
            return lambda: timed(lambda: found.__setitem__(name, lm.loglikelihood(requests)))

        seconds = in_turns(
            {
                "core_lm_eval": run("core_lm_eval", ours),
                "mlx_lm.evaluate": run("mlx_lm.evaluate", theirs),
                "core_tasks.evaluate": lambda: timed(
                    lambda: core_tasks.evaluate(model, asked, prompting=put)
                ),
            },
            runs,
        )
    size = len(asked[0].choices)
    best = {name: _best([value for value, _ in values], size) for name, values in found.items()}
    agree = sum(one == other for one, other in zip(*best.values(), strict=True))
    theirs_took = seconds["mlx_lm.evaluate"]
    return {
        "items": len(asked),
        "items_per_second": {name: len(asked) / value for name, value in seconds.items()},
        "times_mlx_lm": {name: theirs_took / value for name, value in seconds.items()},
        "choices_that_agree": agree,
    }


def _best(values: Sequence[float], size: int) -> list[int]:
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    return [max(range(size), key=group.__getitem__) for group in groups]


def overhead(path: str, asked: Sequence[core_tasks.Item], runs: int) -> dict[str, float]:
    """What is spent beside the model's own work."""
    prompting = core_tasks.Prompting(ENDINGS)
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
                "evaluate": lambda: timed(
                    lambda: core_tasks.evaluate(model, asked, prompting=prompting)
                ),
                "infer-cli eval": lambda: _of_command(path, asked, Path(folder)),
            },
            runs,
        )
    plain = seconds["score"]
    return {name: value / plain - 1 for name, value in seconds.items() if name != "score"}


def _of_command(path: str, asked: Sequence[core_tasks.Item], folder: Path) -> float:
    """The seconds that ``infer-cli eval`` reports for all its rows."""
    import subprocess

    file, report = folder / "items.jsonl", folder / "report.json"
    lines = [
        {"question": item.question, "choices": list(item.choices), "answer": item.answers[0]}
        for item in asked
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    flags = ["--backend", "mlx_cpu", "-O", "prefix_cache=0", "--template", ENDINGS]
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
    found = {
        "labels": task(path, labelled(args.items), LABELS, args.runs),
        "endings": task(path, endings(args.items), ENDINGS, args.runs),
        "overhead": overhead(path, endings(args.items), args.runs),
        "blas": BLAS.name,
    }
    text = json.dumps(found, indent=1)
    print(text)
    if args.json:
        args.json.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
