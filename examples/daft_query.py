"""Label texts in a Daft query, and count the labels.

``python examples/daft_query.py MODEL 'news/*.parquet'``; the files have a column ``text``.
"""

from __future__ import annotations

import argparse
from typing import Any

import daft
from daft.functions import classify_text

from core_daft import CoreProvider

LABELS = ["finance", "sports", "science", "technology"]


def count_labels(model: str, source: str, backend: str = "") -> dict[str, list[Any]]:
    """Return the number of texts with each label."""
    provider = CoreProvider(model, template="{text} This news is about", backend=backend)
    label = classify_text(daft.col("text"), LABELS, provider=provider)
    news = daft.read_parquet(source).with_column("label", label)
    counts: dict[str, list[Any]] = (
        news.groupby("label").agg(daft.col("text").count().alias("rows")).sort("label").to_pydict()
    )
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="a path, or a name that infer-cli discover shows")
    parser.add_argument("source", help="Parquet files, as Daft reads them")
    given = parser.parse_args()
    for name, rows in zip(*count_labels(given.model, given.source).values(), strict=True):
        print(f"{name}: {rows}")
