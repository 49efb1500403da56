"""Label a folder of Parquet files on a Ray cluster, and write another one.

``python examples/ray_parquet.py MODEL news/ labelled/``, on a cluster's head or anywhere: Ray
starts on this machine if there is no cluster. The files have a column ``text``. For a job that can
be resumed, use ``infer-cli classify --ray``.
"""

from __future__ import annotations

import argparse

import ray.data

import core_ray

LABELS = ("finance", "sports", "science", "technology")


def label_folder(model: str, source: str, target: str, backend: str = "") -> None:
    """Write the rows of ``source`` with their labels, and print how many failed."""
    answers = core_ray.classify(
        ray.data.read_parquet(source),
        model=model,
        backend=backend,
        labels=LABELS,
        template="{text} This news is about",
    )
    answers.write_parquet(target)

    written = ray.data.read_parquet(target).select_columns(["error"])
    failed = sum(row["error"] is not None for row in written.iter_rows())
    print(f"{written.count()} rows, {failed} failed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="a path, or a name that infer-cli discover shows")
    parser.add_argument("source", help="a folder of Parquet files, or its URL")
    parser.add_argument("target", help="the folder that is written")
    given = parser.parse_args()
    label_folder(given.model, given.source, given.target)
