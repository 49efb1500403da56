"""What a job of ``infer-cli`` costs beside the library, and what asking equal prompts once saves.

    python benchmarks/jobs.py [--model DIR] [--rows N] [--lines N] [--runs N]

Three figures, each of alternating runs in this process, as one JSON object:

- ``overhead``: a job (CSV in, JSON lines out) over ``model.classify`` on the same prompts in one
  call, in time; the mark is 1.03. Without --model it is left out, and so is the next one.
- ``dedupe``: rows per second of a job on a file in which every third text repeats, over those of
  the same job with --no-dedupe; the mark is 1.4.
- ``lines``: rows per second and the largest memory of this process with a `core.testing.FakeModel`,
  which computes nothing; the marks are 20,000 rows/s and 200 MB, for a million lines.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import core
from core.cli.app import build
from core.cli.loading import Loaded
from core.options import GenerateConfig
from core.testing import FakeBackend, FakeModel

MARKS = {"overhead": 1.03, "dedupe": 1.4, "rows_per_second": 20_000, "megabytes": 200}
LABELS = ("finance", "sports", "science", "politics")
TEMPLATE = "{text} This news is about"
PARTS = (
    ("The striker", "The central bank", "A new telescope", "The senate", "A small company"),
    ("scored", "raised rates", "found a planet", "passed a law", "lost its licence"),
    ("on Monday", "in the last minute", "after a long debate", "against all odds"),
)


def main() -> None:
    """Measure what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    report: dict[str, Any] = {"marks": MARKS}
    with tempfile.TemporaryDirectory() as place:
        if asked.lines:  # first, for the memory is that of the process until then
            report["lines"] = lines(Path(place), asked.lines)
        if asked.model:
            with core.load_model(asked.model) as model:
                report["overhead"] = overhead(Path(place), model, asked.rows, asked.runs)
                report["dedupe"] = dedupe(Path(place), model, asked.rows, asked.runs)
    print(json.dumps(report, indent=2))


def texts(count: int) -> list[str]:
    """Sentences of which no two are alike."""
    first, second, third = PARTS
    return [
        f"{first[n % 5]} {second[n // 5 % 5]} {third[n // 25 % 4]}, report {n} says."
        for n in range(count)
    ]


def overhead(place: Path, model: Any, rows: int, runs: int) -> dict[str, object]:
    """A job over one call, in time."""
    sentences = texts(rows)
    file = _table(place, sentences)
    prompts = [TEMPLATE.replace("{text}", text) for text in sentences]
    config = GenerateConfig(labels=LABELS, return_logprobs=True)

    def library() -> None:
        model.classify(prompts, config)

    with _instead_of_loading(model):
        pairs = [(_seconds(lambda: _job(file, place)), _seconds(library)) for _ in range(runs + 1)]
    jobs, calls = zip(*pairs[1:], strict=True)  # the first ones are warming up
    ratios = [job / call for job, call in zip(jobs, calls, strict=True)]
    return {
        "ratio": _median(ratios),
        "job_seconds": _median(jobs),
        "library_seconds": _median(calls),
    }


def dedupe(place: Path, model: Any, rows: int, runs: int) -> dict[str, object]:
    """A job without --no-dedupe over one with it, in rows per second."""
    sentences = texts(rows)
    repeated = [sentences[n // 2] if n % 3 == 2 else text for n, text in enumerate(sentences)]
    file = _table(place, repeated)
    with _instead_of_loading(model):
        pairs = [
            (
                _seconds(lambda: _job(file, place)),
                _seconds(lambda: _job(file, place, "--no-dedupe")),
            )
            for _ in range(runs + 1)
        ]
    fast, slow = zip(*pairs[1:], strict=True)
    ratios = [with_all / once for once, with_all in zip(fast, slow, strict=True)]
    return {"ratio": _median(ratios), "seconds": _median(fast), "no_dedupe_seconds": _median(slow)}


def lines(place: Path, count: int) -> dict[str, object]:
    """A job of so many lines of text with a model that computes nothing."""
    file = place / "lines.txt"
    with open(file, "w") as stream:
        stream.writelines(f"sentence number {n} about what happened\n" for n in range(count))
    model = Forgetful(labels=lambda prompt, labels: labels[len(prompt) % len(labels)])
    with _instead_of_loading(model):
        seconds = _seconds(lambda: _job(file, place))
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows": count, "rows_per_second": round(count / seconds), "megabytes": round(largest)}


class Forgetful(FakeModel):
    """The fake, which would keep every prompt in ``calls``."""

    def classify(self, *arguments: Any, **options: Any) -> Any:
        """Forget the call."""
        results = super().classify(*arguments, **options)
        self.calls.clear()
        return results


def _table(place: Path, sentences: Sequence[str]) -> Path:
    file = place / "rows.csv"
    with open(file, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "text"])
        writer.writerows(enumerate(sentences))
    return file


@contextlib.contextmanager
def _instead_of_loading(model: Any) -> Iterator[None]:
    """Give this model to each job: its load is none of a job's cost."""

    class Kept:
        model_type, info = model.model_type, model.info

        def __enter__(self) -> Any:
            return model

        def __exit__(self, *error: object) -> None:
            """The model stays open."""

        def __getattr__(self, name: str) -> Any:
            return getattr(model, name)

    kept: Any = Kept()
    loaded = Loaded(__file__, kept, FakeBackend("", labels={}), "", 0.0)
    with mock.patch("core.cli.jobs.run.load", return_value=loaded):
        yield


def _job(file: Path, place: Path, *flags: str) -> None:
    arguments = ["classify", "-m", str(place), "--labels", ",".join(LABELS), "-i", str(file)]
    template = [] if file.suffix == ".txt" else ["--template", TEMPLATE]
    out = ["-o", str(place.parent / f"{place.name}.out.jsonl"), "--overwrite", "--no-progress"]
    code: object = 0
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            build().main([*arguments, *template, *out, *flags])
        except SystemExit as end:
            code = end.code
    if code:
        raise RuntimeError(said.getvalue())


def _seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


if __name__ == "__main__":
    main()
