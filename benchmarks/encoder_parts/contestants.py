"""The contestants, and the parent's end of their processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.encoder_parts.subject import Spec
from benchmarks.line_process import ROOT, LineProcess, UnavailableError
from core.options import LABEL_SENTENCE

DTYPES = ("float32", "bfloat16", "int8")
OURS = {dtype: f"core encoder {dtype}" for dtype in DTYPES}
REFERENCE = OURS["float32"]
ONNX = {weights: f"onnxruntime {weights}" for weights in ("float32", "int8")}
SPARROW = "sparrow-decider"
MLX, OPENVINO = "core mlx_cpu, SmolLM2", "core openvino bfloat16, SmolLM2"
ENCODERS = (*OURS.values(), *ONNX.values())
NAMES = (*ENCODERS, SPARROW, OPENVINO, MLX)

_PROMPT = "{text} This news is about"  # of the timed set
_QUESTION = "What is this text about?"


def fetched(name: str) -> str:
    """Return the directory of a real model; it is made if missing (tools/fetch_models.py)."""
    command = [sys.executable, str(ROOT / "tools" / "fetch_models.py"), "--json", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, encoding="utf-8")
    return str(json.loads(done.stdout)[name]["directory"])


def specs(encoder: str, decoder: str, peers: str) -> list[Spec]:
    """Return all contestants on one thread; ``peers`` is the interpreter of the peers."""
    own = sys.executable
    # Nothing is kept between the calls.
    one = {"n_threads": 1, "prefix_cache": 0}
    spec = [
        Spec(name, "core", encoder, own, LABEL_SENTENCE,
             {"backend": "encoder", "load": {"n_threads": 1, "dtype": dtype}})
        for dtype, name in OURS.items()
    ]  # fmt: skip
    spec += [
        Spec(name, "onnx", encoder, peers, LABEL_SENTENCE, {"weights": weights, "threads": 1})
        for weights, name in ONNX.items()
    ]
    openvino = {"backend": "openvino", "load": {**one, "dtype": "bfloat16"}}
    mlx = {"backend": "mlx_cpu", "load": {"prefix_cache": 0}}
    return [
        *spec,
        Spec(SPARROW, "sparrow", "", peers, _QUESTION),
        Spec(OPENVINO, "core", decoder, own, _PROMPT, openvino),
        Spec(MLX, "core", decoder, own, _PROMPT, mlx),
    ]


@dataclass(frozen=True, slots=True)
class Timed:
    """The times of a contestant's calls, and its rows in the last one."""

    cpu_seconds: list[float]
    seconds: list[float]
    rows: list[list[float]]


class Contestant:
    """The parent's end of a process. Raises `UnavailableError` if it cannot run."""

    def __init__(self, spec: Spec, environment: Mapping[str, str]) -> None:
        self.spec = spec
        module = "benchmarks.encoder_parts.worker"
        self._process = LineProcess(spec.python, module, spec, environment)
        self.about: str = self._process.answer()["about"]

    def label(self, texts: Sequence[str], labels: Sequence[str], question: str) -> dict[str, Any]:
        """Return rows of label scores, and the time that they took."""
        request = {"texts": [*texts], "labels": [*labels], "question": question}
        return self._process.ask(request)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return vectors."""
        vectors: list[list[float]] = self._process.ask({"texts": [*texts]})["vectors"]
        return vectors

    def close(self) -> None:
        """End the process."""
        self._process.close()


def started(
    wanted: Iterable[Spec], environment: Mapping[str, str], stack: ExitStack
) -> tuple[list[Contestant], dict[str, str]]:
    """Start the contestants that can run; return the reasons of the others."""
    contestants, skipped = [], {}
    for spec in wanted:
        try:
            contestant = Contestant(spec, environment)
        except UnavailableError as error:
            skipped[spec.name] = str(error)
            continue
        stack.callback(contestant.close)
        contestants.append(contestant)
    return contestants, skipped


def by_turns(
    contestants: Sequence[Contestant], texts: Sequence[str], labels: Sequence[str], runs: int
) -> dict[str, Timed]:
    """Time calls of all contestants in interleaved rounds, after a warm-up of each.

    Another one begins each round, so that none always follows the same one.
    """
    calls: dict[str, list[dict[str, Any]]] = {one.spec.name: [] for one in contestants}
    for number in range(runs + 1):
        first = number % max(1, len(contestants))
        for contestant in (*contestants[first:], *contestants[:first]):
            call = contestant.label(texts, labels, contestant.spec.question)
            if number:
                calls[contestant.spec.name].append(call)
    return {
        name: Timed(
            [call["cpu_seconds"] for call in done],
            [call["seconds"] for call in done],
            done[-1]["rows"],
        )
        for name, done in calls.items()
    }


def size_on_disk(model: str) -> int:
    """Return the bytes of a model's weight files."""
    return sum(file.stat().st_size for file in Path(model).glob("*.safetensors"))
