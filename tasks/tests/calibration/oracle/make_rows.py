"""Make ``rows.json``: a model's label scores for the texts of `benchmarks/labelled/topics.jsonl`.

::

    python benchmarks/labels.py --cache FOLDER --models smollm2 --backends mlx_cpu --ask-only
    python tasks/tests/calibration/oracle/make_rows.py FOLDER

The scores are those of SmolLM2-135M-Instruct after ``{text} This news is about``, to four digits.
The figures of `test_real_rows.py` are computed from them with scikit-learn and numpy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.label_parts.sets import load_sets

SUBJECT = "smollm2-mlx_cpu-topics-continuation.json"


def main() -> None:
    """Round the scores, and write them beside this script, with the gold labels' numbers."""
    scores = json.loads((Path(sys.argv[1]) / SUBJECT).read_text())
    (topics,) = load_sets(["topics"])
    rows = {
        name: [[round(score, 4) for score in row] for row in scores[name]]
        for name in ("rows", "content_free", "named")
    }
    file = Path(__file__).with_name("rows.json")
    file.write_text(json.dumps({**rows, "gold": [*topics.gold]}) + "\n")


if __name__ == "__main__":
    main()
