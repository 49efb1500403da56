"""The contestants: this project's backends first, then the peers."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.classify_parts.quantised import quantised
from benchmarks.classify_parts.runner import Spec
from benchmarks.classify_parts.workloads import ROOT

OURS = "core mlx_cpu"  # what the others are compared with
MLX_LM, MLX_LM_BEST = "mlx_lm default", "mlx_lm best"
RATE = "matmul"
TENSORS, GGUF = "safetensors", "GGUF"  # files; others are kinds of `quantised` made of the GGUF
MODELS = ("smollm2-135m-instruct", "gemma-3-270m")
PEERS: dict[
    str, tuple[str, str, dict[str, Any]]
] = {  # name: (library, the file that it reads, options)
    MLX_LM: ("mlx_lm", TENSORS, {"mode": "default"}),
    MLX_LM_BEST: ("mlx_lm", TENSORS, {"mode": "best"}),
    "mlx_lm prefix cached": ("mlx_lm", TENSORS, {"mode": "prefix"}),
    "llama_cpp loop": ("llama", GGUF, {}),
    "llama_cpp loop Q8_0": ("llama", "Q8_0", {}),
    "llama_cpp loop Q4_0": ("llama", "Q4_0", {}),
    "ctranslate2 float32": ("ctranslate2", TENSORS, {"quantisation": "float32"}),
    "ctranslate2 int8": ("ctranslate2", TENSORS, {"quantisation": "int8_float32"}),
    "transformers": ("transformers", TENSORS, {}),
    "transformers bfloat16": ("transformers", TENSORS, {"dtype": "bfloat16"}),
    **{
        f"openvino export {name}": (
            "openvino_export",
            TENSORS,
            {"precision": precision, "int8": name == "int8"},
        )
        for name, precision in (("float32", "f32"), ("bfloat16", "bf16"), ("int8", "f32"))
    },
}
OWN: dict[
    str, tuple[str, str, dict[str, Any], dict[str, Any]]
] = {  # name: (backend, the file that it reads, options of load, options of classify)
    OURS: ("mlx_cpu", TENSORS, {}, {}),
    f"{OURS}, labels only": ("mlx_cpu", TENSORS, {}, {"labels_only": True}),
    **{
        f"core openvino {dtype}": ("openvino", TENSORS, {"dtype": dtype}, {})
        for dtype in ("float32", "bfloat16", "int8")
    },
    "core llama_cpp": ("llama_cpp", GGUF, {}, {}),
    "core llama_cpp BF16": ("llama_cpp", "BF16", {}, {}),
    "core llama_cpp Q8_0": ("llama_cpp", "Q8_0", {}, {}),
    "core llama_cpp Q4_0": ("llama_cpp", "Q4_0", {}, {}),
}
NAMES = (*OWN, *PEERS)
# One line for each of them switched off (core_mlx_native.chosen); the others do nothing on a CPU.
FAST_PATHS = ("prefix", "sorted", "last_layer", "host_math")
EACH_OFF = {f"without {path}": {"without": [path]} for path in FAST_PATHS}


@dataclass(frozen=True, slots=True)
class Files:
    """A model on disk: safetensors, and the GGUF file that they were converted from, if known."""

    name: str
    directory: str
    gguf: str | None


@dataclass(frozen=True, slots=True)
class Pythons:
    """Interpreters by library."""

    own: str = sys.executable
    mlx_lm: str = sys.executable
    llama: str = sys.executable
    transformers: str = sys.executable
    ctranslate2: str = sys.executable
    openvino_export: str = sys.executable

    def of(self, library: str) -> str:
        """The one that has this library."""
        return str(getattr(self, library, self.own))


def fetch(name: str) -> Files:
    """Return one of the real language models; it is made if missing (tools/fetch_models.py)."""
    command = [sys.executable, str(ROOT / "tools" / "fetch_models.py"), "--json", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, encoding="utf-8")
    paths = json.loads(done.stdout)[name]
    return Files(name, paths["directory"], paths["gguf"])


def given(directory: Path, gguf: Path | None) -> Files:
    """A model of the user's own."""
    return Files(directory.name, str(directory), str(gguf) if gguf else None)


def variant(text: str) -> tuple[str, dict[str, Any]]:
    """Parse ``NAME={"option": value}``, for argparse."""
    name, _, options = text.partition("=")
    try:
        parsed = json.loads(options)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=JSON: {error}") from error
    if not name or not isinstance(parsed, dict):
        raise argparse.ArgumentTypeError(f'{text!r} is not NAME={{"option": value}}')
    return name, parsed


def specs(
    files: Files,
    names: Sequence[str],
    variants: Mapping[str, Mapping[str, Any]],
    pythons: Pythons,
    threads: int,
) -> tuple[list[Spec], dict[str, str]]:
    """Return `RATE` and the contestants, and the reasons for missing ones.

    ``variants`` are further lines of ours: the default backend with these options at load.
    """
    wanted = [*(name for name in NAMES if name in names)]
    lacking = {
        name: f"{files.name} has no GGUF file here: name one with --gguf"
        for name in wanted
        if _reads_gguf(name) and files.gguf is None
    }
    contestants = [Spec(RATE, "matmul", files.directory, pythons.own)]
    for name in (name for name in wanted if name not in lacking):
        try:
            contestants.append(_spec(name, files, pythons, threads))
        except (ImportError, OSError) as error:
            lacking[name] = str(error)
    for name, options in variants.items():
        loading = {"backend": "mlx_cpu", "load": dict(options)}
        contestants.append(Spec(f"{OURS}, {name}", "core", files.directory, pythons.own, loading))
    return contestants, lacking


def _reads_gguf(name: str) -> bool:
    return _file(name) != TENSORS


def _file(name: str) -> str:
    return (OWN[name] if name in OWN else PEERS[name])[1]


def _path(name: str, files: Files) -> str:
    kind = _file(name)
    if kind == TENSORS or files.gguf is None:
        return files.directory
    return files.gguf if kind == GGUF else str(quantised(Path(files.gguf), kind))


def _spec(name: str, files: Files, pythons: Pythons, threads: int) -> Spec:
    path = _path(name, files)
    if name in OWN:
        backend, _, options, classify = OWN[name]
        load = {} if backend == "mlx_cpu" else {"n_threads": threads}
        own = {"backend": backend, "load": {**load, **options}, "classify": classify}
        return Spec(name, "core", path, pythons.own, own)
    library, _, options = PEERS[name]
    return Spec(name, library, path, pythons.of(library), {**options, "threads": threads})
