"""Label a column of a CSV file with pandas, and write the file with the labels as a column.

``python examples/csv_with_pandas.py MODEL news.csv labelled.csv``; the file has a column ``text``.
"""

from __future__ import annotations

import argparse
from os import PathLike

import pandas as pd

import core
from core_frames import classify

LABELS = ("finance", "sports", "science", "technology")


def label_file(
    model: core.TextModel | str, source: str | PathLike[str], target: str | PathLike[str]
) -> pd.DataFrame:
    """The rows of a file with their labels, which are also written."""
    news = pd.read_csv(source)
    results = classify(news["text"], model, LABELS, template="{text} This news is about")
    labelled = news.join(results[["label", "margin", "error"]])  # by the index, which is kept
    labelled.to_csv(target, index=False)
    return labelled


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="a path, or a name that infer-cli discover shows")
    parser.add_argument("source", help="a CSV file with a column text")
    parser.add_argument("target", help="where the labelled file goes")
    given = parser.parse_args()
    rows = label_file(given.model, given.source, given.target)
    print(rows["label"].value_counts(dropna=False).to_string())
