"""Compare calibration levels: models, backends, templates and sets in one table.

Each prompt is run once; raw probabilities, priors (L0), calibrations fitted on a hundred labelled
rows (L1) and heads on 4, 8 and 16 rows a label (L2) are computed from that, and evaluated on other
rows::

    make models
    python benchmarks/labels.py --cache /tmp/labels --json benchmarks/results/labels.json

Scores are cached in ``--cache``, so that an interrupted run resumes. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")  # no g++ may be here

from benchmarks.label_parts import answers
from benchmarks.label_parts.sets import load_sets


def main() -> None:
    """Compute missing scores, then the figures, and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--models", nargs="+", choices=answers.MODELS, default=answers.MODELS)
    parser.add_argument("--backends", nargs="+", choices=answers.BACKENDS, default=answers.BACKENDS)
    parser.add_argument("--sets", nargs="+", default=[])
    parser.add_argument("--ask-only", action="store_true", help="Reckon nothing.")
    parser.add_argument("--json", type=Path, help="Write the figures.")
    given = parser.parse_args()

    given.cache.mkdir(parents=True, exist_ok=True)
    sets = load_sets(given.sets)
    for backend in given.backends:
        for model in given.models:
            answers.ask(given.cache, model, backend, sets)
    if given.ask_only:
        return

    from benchmarks.label_parts import levels, table

    figures = levels.all_figures(given.cache, given.models, given.backends, sets)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(table.markdown(figures))


if __name__ == "__main__":
    main()
