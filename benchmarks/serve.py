"""Measure the server against the library in process and against other servers.

SmolLM2-135M on one machine. Servers are separate processes; compared runs are interleaved::

    make models
    pip install 'llama-cpp-python[server]' mlx-lm
    python benchmarks/serve.py [--parts answers ...] [--turns 3] [--small] [--json FILE]

``--small`` makes a few requests of each, to see that everything runs. Parts:

- ``answers``: System One's decisions on examples/headlines.jsonl in all 24 orders of the options:
  accuracy, and the share of rows that some order changes; compared with letters on the same weights
- ``streams``: tokens/s of 64 concurrent streams, compared with ``batch_generate``
- ``lists``: texts/s of 2,000 in one request, and of 2,000 requests of one from 32 connections,
  compared with `core_tasks.Task.classify` of one list
- ``latency``: what a request of one client takes beyond the same call in process, one by one
- ``clients``: decisions/s of 32 clients with one request at a time, also from llama-cpp-python's
  server on the same GGUF file and mlx_lm.server on the same directory, which return one token of
  those that begin a label, after the prompt that our server makes. Ours returns all labels'
  probabilities; llama-cpp-python's is measured with them (``logprobs``, for which it needs
  ``logits_all``) and without
- ``prefix``: the second of two calls with one instruction of 150 tokens and 8 texts over the first

A part's figures replace those of an earlier run in the file; others stay.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")  # no g++ may be here

from benchmarks.label_parts.answers import path_of
from benchmarks.machine import caption, describe
from benchmarks.serve_parts.parts import PARTS, Setup, threads
from benchmarks.serve_parts.table import markdown

RESULTS = Path(__file__).resolve().parent / "results" / "serve.json"


def say(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)


def measured(setup: Setup, names: list[str], file: Path) -> dict[str, Any]:
    """Measure these parts, and write each into the file as soon as it is complete."""
    text = file.read_text() if file.exists() else ""
    figures: dict[str, Any] = json.loads(text or "{}")  # /dev/null is empty
    for name in names:
        say(f"{name}:")
        machine = describe(threads())
        figures[name] = {**PARTS[name](setup), "turns": setup.turns, "machine": machine}
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return figures


def main() -> None:
    """Measure, keep, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--small", action="store_true", help="a rehearsal; writes no file by itself"
    )
    parser.add_argument("--json", type=Path, help=f"default {RESULTS.name} in benchmarks/results")
    given = parser.parse_args()
    directory, gguf = path_of("smollm2", "mlx_cpu"), path_of("smollm2", "llama_cpp")
    setup = Setup(directory, gguf, turns=given.turns, say=say)
    if given.small:
        setup = replace(setup, rows=4, streams=4, tokens=8, texts=24, singles=8, decisions=16)
    file = given.json or (Path(os.devnull) if given.small else RESULTS)
    figures = measured(setup, given.parts, file)
    print(markdown(figures))
    print(f"\n{caption(figures[given.parts[0]]['machine'])}")


if __name__ == "__main__":
    main()
