"""What jobs cost: rows from a file into a file, beside the library and beside a loop. Prints JSON.

    python benchmarks/jobs.py [--only NAME ...] [--runs 5] [--rows 600] [--lines 1000000]

``overhead``: a job (``infer-cli classify -i IN -o OUT`` in this process, with a model that is
loaded) over one call of ``classify`` with the same prompts; SmolLM2-135M on mlx_cpu. ``lines``:
lines of text through `core.testing.FakeModel` in a process of its own: rows per second of all of
it, and without what the fake takes, and the process's peak of memory. ``repeated``: every third
text was there before; how many times faster a job is than with --no-dedupe. ``help``: milliseconds
of ``infer-cli --help``. ``loop``: jobs on a GGUF file by llama_cpp, and on the directory converted
from it by mlx_cpu, beside loops over ``llama_cpp.Llama``, which reuses the common beginning of
prompts by itself: one with ``create_completion`` and log-probabilities, as most write it, and one
that reads the labels' first tokens off the logits.

What is compared takes turns, and medians count. The exit status is 1 where a mark is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import eq
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("MLX_DISABLE_COMPILE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import core
from benchmarks.classify_parts.worker import peak_bytes
from benchmarks.cli_startup import measure
from benchmarks.gguf import FIRST, HEADLINES, LABELS, Loop, compare
from core.testing import FakeModel
from core_cli.app import build
from core_cli.jobs import run
from core_cli.loading import Loaded
from tools.fetch_models import smollm2_gguf

TEMPLATE = "{text} This news is about"
AT_MOST = {"overhead": 1.03, "lines_megabytes": 200.0, "help_milliseconds": 150.0}
AT_LEAST = {
    "lines_rows_per_second": 20_000.0,
    "repeated": 1.4,
    "llama_cpp_times_the_loop": 1.5,
    "mlx_cpu_times_the_loop": 2.0,
}
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "core"
SEED = 20


def headlines() -> list[str]:
    """Sentences of about 20 tokens."""
    return [json.loads(line)["text"] for line in HEADLINES.read_text("utf-8").splitlines()]


def distinct(count: int) -> list[str]:
    """Their words in so many orders: no two are the same, and hardly any begin alike.

    A beginning that two rows share is computed once, where both are in one call.
    """
    chance, known = random.Random(SEED), headlines()
    shuffled = (known[n % len(known)].split() for n in range(count))
    return [" ".join(chance.sample(words, len(words))) for words in shuffled]


def repeating(count: int) -> list[str]:
    """The same, and every third was there before: seldom within a block, which any call sees."""
    chance, texts = random.Random(SEED), distinct(count)
    return [texts[chance.randrange(n // 2)] if n % 3 == 2 else texts[n] for n in range(count)]


@dataclass(frozen=True)
class Jobs:
    """Jobs in this process, on a model that is loaded and stays so."""

    model: Any
    backend: Any
    place: Path

    @classmethod
    @contextmanager
    def on(cls, path: Path, backend: str) -> Iterator[Jobs]:
        """With the model at a path."""
        with (
            tempfile.TemporaryDirectory() as place,
            core.load_model(path, backend=backend, options={"prefix_cache": 0}) as model,
        ):
            yield cls(model, core.get_backend(backend), Path(place))

    def labels(self) -> list[str]:
        """What the last job found."""
        lines = (self.place / "out.jsonl").read_text().splitlines()
        return [json.loads(line)["label"] for line in lines]

    def run(self, texts: list[str], template: str, *flags: str) -> None:
        """Classify lines of text."""
        source = self.place / "rows.txt"
        source.write_text("".join(f"{text}\n" for text in texts), "utf-8")
        files = ("-i", source, "-o", self.place / "out.jsonl", "--overwrite")
        asked = ("-m", "loaded", "--labels", ",".join(LABELS), "--template", template)
        loaded = Loaded(str(HEADLINES), self.model, self.backend, "", 0.0)
        with (
            patch.object(run, "load", lambda *_: loaded),
            patch.object(type(self.model), "__exit__", _nothing),
        ):
            classify(*files, *asked, *flags)


def _nothing(*_: object) -> None:
    """Leave the model open."""


def classify(*arguments: str | Path) -> None:
    """``infer-cli classify``, in silence."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            build().main(["classify", *map(str, arguments)])
        except SystemExit as ended:
            if ended.code:
                raise SystemExit(said.getvalue()) from None


# ------------------------------------------------------------------ what is measured


def overhead(options: argparse.Namespace) -> dict[str, float]:
    """A job over one call of the library."""
    texts = distinct(options.rows)
    prompts = [TEMPLATE.replace("{text}", text) for text in texts]
    with Jobs.on(options.model, "mlx_cpu") as jobs:
        jobs.run(texts[:64], TEMPLATE)
        found = compare(
            lambda: jobs.model.classify(prompts, labels=LABELS, return_logprobs=True),
            lambda: jobs.run(texts, TEMPLATE),
            options.runs,
        )
    return {"library": found["ours"], "job": found["theirs"], "overhead": found["ratio"]}


def lines(options: argparse.Namespace) -> dict[str, float]:
    """Many lines, in a process of its own for its memory."""
    command = [sys.executable, __file__, "--serve", "--lines", str(options.lines)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def serve(count: int) -> None:
    """That process."""
    model = FakeModel(labels=lambda prompt, labels: labels[len(prompt) % len(labels)])
    answer, spent = model.classify, 0.0

    def timed(*given: Any, **named: Any) -> Any:
        nonlocal spent
        start = time.perf_counter()
        results = answer(*given, **named)
        model.calls.clear()  # it remembers all prompts
        spent += time.perf_counter() - start
        return results

    backend = type("Fake", (), {"name": "fake", "capabilities": model.capabilities})
    loaded = Loaded(str(HEADLINES), model, backend(), "", 0.0)
    with tempfile.TemporaryDirectory() as place:
        source = Path(place, "rows.txt")
        with open(source, "w") as stream:
            stream.writelines(
                f"sentence {n} about what happens in the world\n" for n in range(count)
            )
        files = ("-i", source, "-o", Path(place, "out.jsonl"))
        with patch.object(model, "classify", timed), patch.object(run, "load", lambda *_: loaded):
            start = time.perf_counter()
            classify("-m", "loaded", "--labels", "a,b,c", *files)
            seconds = time.perf_counter() - start
    rates = {"": seconds, "_without_the_fake": seconds - spent}
    found = {f"lines_rows_per_second{name}": count / taken for name, taken in rates.items()}
    print(json.dumps({**found, "lines_megabytes": peak_bytes() / 1e6}))


def repeated(options: argparse.Namespace) -> dict[str, float]:
    """Rows of which a third is known, with and without asking them again."""
    texts = repeating(options.rows)
    with Jobs.on(options.model, "mlx_cpu") as jobs:
        jobs.run(texts[:64], TEMPLATE)
        found = compare(
            lambda: jobs.run(texts, TEMPLATE),
            lambda: jobs.run(texts, TEMPLATE, "--no-dedupe"),
            options.runs,
        )
    rates = {name: options.rows / found[name] for name in ("ours", "theirs")}
    return {"dedupe": rates["ours"], "no_dedupe": rates["theirs"], "repeated": found["ratio"]}


def start(options: argparse.Namespace) -> dict[str, float]:
    """How long the program takes to say what it can."""
    return {"help_milliseconds": measure(["--help"], 10) * 1000}


def loop(options: argparse.Namespace) -> dict[str, float]:
    """The same question about the same rows: two backends' jobs, and what many write by hand."""
    texts, template = distinct(options.rows), f"{FIRST}{{text}} Field:"
    prompts = [template.replace("{text}", text) for text in texts]
    file = options.gguf or smollm2_gguf()
    peers: dict[str, Any] = {"loop": Loop(file, os.cpu_count() or 1), "fast_loop": FastLoop(file)}
    found = {}
    for backend, path in (("llama_cpp", file), ("mlx_cpu", options.model)):
        with Jobs.on(path, backend) as jobs:
            jobs.run(texts[:64], template)
            for name, peer in peers.items():
                peer.classify(prompts[:8])
                times = compare(
                    lambda jobs=jobs: jobs.run(texts, template),  # type: ignore[misc]
                    lambda peer=peer: peer.classify(prompts),  # type: ignore[misc]
                    options.runs,
                )
                found[f"{backend}_times_the_{name}"] = times["ratio"]
                found[f"{name}_rows_per_second"] = options.rows / times["theirs"]
            found[f"{backend}_rows_per_second"] = options.rows / times["ours"]
            same = map(eq, jobs.labels(), peers["fast_loop"].classify(prompts))
            found[f"{backend}_labels_as_the_loop"] = sum(same) / options.rows
    return found


class FastLoop:
    """The loop of somebody who reads the labels' first tokens off the logits, and copies nothing.

    ``generate`` keeps the common beginning of two prompts.
    """

    def __init__(self, path: Path) -> None:
        library: Any = importlib.import_module("llama_cpp")
        threads = os.cpu_count() or 1
        options = {"n_threads": threads, "n_threads_batch": threads, "verbose": False}
        self._llama = library.Llama(str(path), n_ctx=512, **options)
        known = [self._llama.tokenize(f" {label}".encode(), add_bos=False) for label in LABELS]
        self._first = [tokens[0] for tokens in known]

    def classify(self, prompts: list[str]) -> list[str]:
        """The label of each prompt whose first token is likeliest."""
        return [self._label(prompt) for prompt in prompts]

    def _label(self, prompt: str) -> str:
        tokens = self._llama.tokenize(prompt.encode(), special=True)
        next(self._llama.generate(tokens, top_k=1, temp=0.0))
        logits = self._llama._ctx.get_logits_ith(-1)
        best = max(range(len(LABELS)), key=lambda place: logits[self._first[place]])
        return LABELS[best]


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    "overhead": overhead,
    "lines": lines,
    "repeated": repeated,
    "help": start,
    "loop": loop,
}


def missed(found: dict[str, float]) -> list[str]:
    """The marks that are not reached."""
    above = [name for name, mark in AT_MOST.items() if found.get(name, mark) > mark]
    below = [name for name, mark in AT_LEAST.items() if found.get(name, mark) < mark]
    return [*above, *below]


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Time jobs of infer-cli.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--runs", type=int, default=5, help="runs of each; default 5")
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--model", type=Path, default=CACHE / "models" / "smollm2-135m-instruct")
    parser.add_argument("--gguf", type=Path, help="of the loop; default: the model's package's")
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure and print; 1 when a mark is missed."""
    options = parse_arguments()
    if options.serve:
        serve(options.lines)
        return 0
    found: dict[str, float] = {}
    for name in options.only:
        found |= PARTS[name](options)
    report = {
        "rows": options.rows,
        "runs": options.runs,
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        **{name: round(value, 3) for name, value in found.items()},
        "missed": missed(found),
    }
    text = json.dumps(report, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    return int(bool(report["missed"]))


if __name__ == "__main__":
    raise SystemExit(main())
