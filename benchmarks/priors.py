"""The worth of priors at four class balances: models, sets and templates in one table.

Asks what is not kept in ``--cache`` yet (`benchmarks/labels.py` keeps the same there), and
simulates from that, so that nothing is asked twice::

    make models
    python benchmarks/priors.py --cache /tmp/labels --json benchmarks/results/priors.json

Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")  # no g++ may be here

from benchmarks.label_parts import asking, skews
from benchmarks.label_parts.sets import load_sets


def main() -> None:
    """Ask what is not known yet, simulate, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--models", nargs="+", choices=asking.MODELS, default=asking.MODELS)
    parser.add_argument("--backend", choices=asking.BACKENDS, default="mlx_cpu")
    parser.add_argument("--sets", nargs="+", default=[])
    parser.add_argument("--json", type=Path, help="Write the figures.")
    given = parser.parse_args()

    given.cache.mkdir(parents=True, exist_ok=True)
    sets = load_sets(given.sets)
    for model in given.models:
        asking.ask(given.cache, model, given.backend, sets, with_states=False)
    cells = [*skews.all_cells(given.cache, given.models, given.backend, sets)]
    if given.json:
        lines = ",\n".join(json.dumps(cell) for cell in cells)
        given.json.write_text(f"[\n{lines}\n]\n")
    print(skews.markdown(cells))


if __name__ == "__main__":
    main()
