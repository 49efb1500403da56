"""Compare an encoder with language models, and with other runtimes on the same weights.

All give the labels of the sets in `labelled/`. Every contestant has a process of its own with one
thread; calls are interleaved, one at a time, and medians of the CPU time of a row are compared, so
that other work on the machine counts for little. The time is measured from texts to labels.
Accuracies are those of `docs/levels.md`'s evaluation rows, plain and with a prior of 100 unlabelled
rows drawn at random (the mean of 20 draws), and of heads that learned from the fitting rows.

The peers run in an environment of their own, onnxruntime on a graph that is written on the first
run::

    python -m venv peers
    peers/bin/pip install onnx onnxruntime==1.32.0 tokenizers safetensors sparrow-decider==0.2.0
    python benchmarks/encoder.py --peers-python peers/bin/python --json encoder.json

Prints the tables of docs/speed.md, and which goals are met; ends with 1 if one is not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")  # no g++ may be here

import numpy as np

from benchmarks import machine
from benchmarks.classify_parts.comparison import say, threads_environment
from benchmarks.encoder_parts import contestants as field
from benchmarks.encoder_parts import languages, quality, tables
from benchmarks.encoder_parts.contestants import ENCODERS, NAMES, REFERENCE, Contestant, Timed
from benchmarks.label_parts.sets import LabelledSet, load_sets

SETS = ("topics", "sentiment", "tickets")
TIMED = "topics"
Figures = dict[str, Any]


def measure(
    contestants: Sequence[Contestant], sets: Mapping[str, LabelledSet], runs: int
) -> Figures:
    """Time all contestants, then measure the quality of those that read label sentences."""
    of = sets[TIMED]
    texts = [of.texts[row] for row in of.evaluation]
    timed = field.by_turns(contestants, texts, of.labels, runs)
    figures: Figures = {
        one.spec.name: {"about": one.about, **times(timed[one.spec.name], len(texts))}
        for one in contestants
    }
    vectors = {
        one.spec.name: {name: np.array(one.embed(of.texts)) for name, of in sets.items()}
        for one in contestants
        if one.spec.name in ENCODERS
    }
    rows = {
        one.spec.name: {
            name: np.array(one.label(of.texts, of.labels, one.spec.question)["rows"])
            for name, of in sets.items()
        }
        for one in contestants
        if "{text}" not in one.spec.question
    }
    for name, own in rows.items():
        say(f"  quality: {name}")
        figures[name]["accuracy"] = {
            set_name: quality.accuracies(own[set_name], of) for set_name, of in sets.items()
        }
        if name in vectors and REFERENCE in vectors:
            figures[name]["cosine"] = quality.cosines(vectors[name], vectors[REFERENCE])
            figures[name]["labels"] = quality.agreement(own, rows[REFERENCE])
        if name in vectors:
            figures[name]["heads"] = {
                set_name: quality.heads(vectors[name][set_name], of)
                for set_name, of in sets.items()
            }
    return figures


def times(timed: Timed, rows: int) -> Figures:
    """Return the milliseconds of a row: CPU time of each call, their median, and wall time's."""
    cpu = [1000 * seconds / rows for seconds in timed.cpu_seconds]
    wall = statistics.median(1000 * seconds / rows for seconds in timed.seconds)
    return {"cpu_ms": statistics.median(cpu), "all_cpu_ms": cpu, "wall_ms": wall}


def sentences(contestant: Contestant, sets: Mapping[str, LabelledSet]) -> Figures:
    """Return the accuracy with each label sentence, and the scale that fits best."""
    figures: Figures = {}
    vectors = {name: np.array(contestant.embed(of.texts)) for name, of in sets.items()}
    for sentence in (*quality.SENTENCES, *quality.SPECIAL):
        figures[sentence] = {}
        for name, of in sets.items():
            filled = [sentence.format(label=label) for label in of.labels]
            embedded = np.array(contestant.embed(filled))
            rows = quality.scores(vectors[name], embedded)
            scale = quality.best_scale(vectors[name], embedded, of)
            figures[sentence][name] = {**quality.accuracies(rows, of), "best_scale": scale}
    return figures


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--contestants", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME")
    add("--model", help="the encoder's directory; default: that of make models")
    add("--sets", nargs="+", choices=SETS, default=list(SETS))
    add("--runs", type=int, default=7)
    add("--peers-python", default=sys.executable, metavar="PATH")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Measure, show and write; return 1 if a goal is missed."""
    arguments = parse_arguments(given)
    sets = {of.name: of for of in load_sets(arguments.sets)}
    encoder = arguments.model or field.fetched("all-minilm-l6-v2")
    wanted = [
        spec
        for spec in field.specs(
            encoder, field.fetched("smollm2-135m-instruct"), arguments.peers_python
        )
        if spec.name in arguments.contestants
    ]
    about = machine.describe(threads=1)
    with ExitStack() as stack:
        contestants, skipped = field.started(wanted, threads_environment(1), stack)
        figures = measure(contestants, sets, arguments.runs)
        reference = [one for one in contestants if one.spec.name == REFERENCE]
        report: Figures = {
            "machine": about,
            "runs": arguments.runs,
            "skipped": skipped,
            "contestants": figures,
            "sentences": sentences(reference[0], sets) if reference else {},
        }
    if reference and not arguments.model:
        report["languages"] = languages.right(encoder, field.fetched("gemma-3-270m"))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    goals = tables.goals(figures)
    print("\n".join([tables.peers(report), tables.sentences(report), tables.told(goals)]))
    for name, why in skipped.items():
        print(f"skipped: {name}: {why}")
    return int(not all(goal.met for goal in goals))


if __name__ == "__main__":
    sys.exit(main())
