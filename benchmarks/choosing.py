"""Compare language models, an encoder, classifier heads and character n-grams on the labelled sets.

Accuracies of language models and their heads come from `results/labels.json`, those of the encoder
from `results/encoder.json`, for the same held-out rows. Character n-grams (TF-IDF and
logistic regression, both of scikit-learn at their defaults) are trained here on the same rows and
tested on the same held-out rows; for more rows than these sets leave for training, on five folds of
the complete set. Speed is measured for all of them, on one thread, in rows per CPU second: the 200
held-out rows of `topics`, the median of ``--runs`` interleaved calls::

    make models
    python benchmarks/choosing.py --json benchmarks/results/choosing.json

Prints the table of docs/choosing.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")  # no g++ may be here
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline

import core
from benchmarks.encoder_parts.contestants import REFERENCE
from benchmarks.label_parts.levels import DEFAULT, RAW, SIZES, draws
from benchmarks.label_parts.sets import LabelledSet, load_sets
from benchmarks.label_parts.table import NAMES
from core_learn import FewShot

RESULTS = Path(__file__).parent / "results"
MODELS = {"smollm2": "smollm2-135m-instruct", "gemma3": "gemma-3-270m"}
MINILM, ENCODER = "all-MiniLM-L6-v2", "all-minilm-l6-v2"
SETS = ("topics", "sentiment", "tickets")
TIMED, TEMPLATE = "topics", "continuation"
NGRAMS = "character n-grams"

Calls = dict[str, Callable[[], object]]


def ngram_classifier() -> Any:
    """Return the baseline, untrained."""
    ngrams = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4))
    return make_pipeline(ngrams, LogisticRegression())


def trained(of: LabelledSet, rows: Sequence[int]) -> Any:
    """Train the baseline on these rows."""
    texts, gold = [of.texts[row] for row in rows], [of.gold[row] for row in rows]
    return ngram_classifier().fit(texts, gold)


def accuracy(of: LabelledSet, rows: Sequence[int]) -> float:
    """Return its accuracy on the held-out rows."""
    predicted = trained(of, rows).predict([of.texts[row] for row in of.evaluation])
    return float(np.mean(predicted == np.array([of.gold[row] for row in of.evaluation])))


def ngram_accuracies(of: LabelledSet) -> dict[str, float]:
    """Return the mean accuracy over the draws that the heads learned from, and over five folds."""
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    of_folds = cross_val_score(ngram_classifier(), of.texts, of.gold, cv=folds)
    return {
        **{str(size): statistics.mean(accuracy(of, d) for d in draws(of, size)) for size in SIZES},
        "five folds": float(of_folds.mean()),
    }


def calls_of(name: str, model: Any, of: LabelledSet, template: str) -> Calls:
    """Return the calls of a model to be timed: labels of prompts, and a head on hidden states."""
    texts = [of.texts[row] for row in of.evaluation]
    prompts = [template.format(text=text) for text in texts]
    learned = next(iter(draws(of, max(SIZES))))
    few = FewShot(model)
    few.fit([of.texts[row] for row in learned], [of.labels[of.gold[row]] for row in learned])
    return {
        name: lambda: model.classify(prompts, labels=of.labels),
        f"{name}, head": lambda: few.predict(texts),
    }


def rates(calls: Calls, rows: int, runs: int) -> dict[str, float]:
    """Return rows per CPU second of each call, the median of interleaved runs."""
    seconds = defaultdict[str, list[float]](list)
    for _ in range(runs):
        for name, call in calls.items():
            started = time.process_time()
            call()
            seconds[name].append(time.process_time() - started)
    return {name: round(rows / statistics.median(spent), 1) for name, spent in seconds.items()}


def measure(runs: int) -> dict[str, Any]:
    """Train the n-grams on all sets, and time every method on one."""
    sets = {of.name: of for of in load_sets([*SETS])}
    of = sets[TIMED]
    classifier, texts = trained(of, of.fitting), [of.texts[row] for row in of.evaluation]
    calls: Calls = {NGRAMS: lambda: classifier.predict(texts)}
    for name, path in MODELS.items():
        options = {"prefix_cache": 0}  # nothing is cached between the calls
        model = core.load_model(path, backend="mlx_cpu", options=options)
        calls |= calls_of(name, model, of, of.templates[TEMPLATE])
    one = {"n_threads": 1, "dtype": "float32"}
    encoder = core.load_model(ENCODER, backend="encoder", options=one)
    calls |= calls_of(MINILM, encoder, of, "{text}")
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "accuracy": {name: ngram_accuracies(of) for name, of in sets.items()},
        "rows_per_cpu_second": rates(calls, len(texts), runs),
    }


def table(labels: dict[str, Any], encoder: dict[str, Any], measured: dict[str, Any]) -> str:
    """Return Markdown: a row for each method, with its accuracy on each set and its speed."""
    speed = measured["rows_per_cpu_second"]
    lines = [
        f"| method | labelled texts | {' | '.join(SETS)} | rows per CPU second |",
        "|---|---:|---:|---:|---:|---:|",
    ]

    def add(method: str, texts: str, shares: Sequence[float], rate: float) -> None:
        cells = " | ".join(f"{100 * share:.1f} %" for share in shares)
        lines.append(f"| {method} | {texts} | {cells} | {rate:,.0f} |")

    for name in MODELS:
        for level, title in ((RAW, "prompt, `raw`"), (DEFAULT, "prompt, content-free")):
            cells = [cell for cell in labels["cells"] if cell["model"] == name]
            means = [
                statistics.mean(c["levels"][level]["accuracy"] for c in cells if c["set"] == of)
                for of in SETS
            ]
            add(f"{NAMES[name]}, {title}", "none", means, speed[name])
    exact = encoder["contestants"][REFERENCE]
    for kind, title in (("plain", "sentence, `raw`"), ("prior", "sentence, mean")):
        shares = [exact["accuracy"][of][kind] for of in SETS]
        add(f"{MINILM}, {title}", "none", shares, speed[MINILM])
    for size in (min(SIZES), max(SIZES)):
        for name in MODELS:
            own = [head for head in labels["heads"] if head["model"] == name]
            by_set = {head["set"]: head["levels"][f"L2 of {size}"]["accuracy"] for head in own}
            means = [by_set[of] for of in SETS]
            add(f"{NAMES[name]}, head", f"{size} per label", means, speed[f"{name}, head"])
        shares = [exact["heads"][of][str(size)] for of in SETS]
        add(f"{MINILM}, head", f"{size} per label", shares, speed[f"{MINILM}, head"])
        means = [measured["accuracy"][of][str(size)] for of in SETS]
        add(NGRAMS, f"{size} per label", means, speed[NGRAMS])
    add(
        NGRAMS,
        "240 to 480",
        [measured["accuracy"][of]["five folds"] for of in SETS],
        speed[NGRAMS],
    )
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, help="Write the results.")
    options = parser.parse_args()
    measured = measure(options.runs)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")
    labels, encoder = (
        json.loads((RESULTS / f"{name}.json").read_text()) for name in ("labels", "encoder")
    )
    print(table(labels, encoder, measured))


if __name__ == "__main__":
    main()
