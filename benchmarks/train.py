"""Measure LoRA training against ``mlx_lm.lora``'s trainer, and the memory of checkpointing.

SmolLM2-135M in float32 on a CPU, both with the same BLAS, in one process, interleaved: each turn is
one epoch of the same headlines as chats, so that both learn the same tokens, and padding counts for
neither. mlx-lm's own ``tuner.trainer.train`` is what ``mlx_lm.lora`` runs; with a C++
compiler it runs compiled (`mx.compile`) as well, and the faster of the two is the peer::

    pip install mlx-lm==0.32.2
    python benchmarks/train.py [--turns 3] [--batches 18] [--only speed memory] [--json FILE]

``speed``: prompts masked or not, LoRA of rank 8 on all linear maps of the last 16 layers, batch 4,
AdamW; medians of the turns, the mark is 1.2 times the peer. Ours makes a network for each training,
which costs half a second in the first step; theirs has one from the start. ``memory``: the peak of
a step with gradient checkpointing over that without, on a random model of 32 layers; the mark is
0.7. Writes JSON into benchmarks/results and prints a table; exits with 1 when a mark is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")

from core_mlx_native.cpu.blas import ensure_blas

BLAS = ensure_blas()  # before mlx

import mlx.core as mx  # noqa: E402

import core  # noqa: E402
from benchmarks.classify_parts.contestants import MODELS, fetch  # noqa: E402
from core_mlx_native.model import MlxModel  # noqa: E402
from core_runtime.checkpoint.config import parse_config  # noqa: E402
from core_runtime.checkpoint.tensors import expected_tensors  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "train.json"
MARKS = {"speed": 1.2, "memory": 0.7}
RANK, SCALE, LAYERS, BATCH, RATE = 8, 20.0, 16, 4, 1e-5
QUESTION = "Which field is this news about: finance, sports, science or technology?"
DEEP = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 32,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 1024,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": True,
}

Turn = Callable[[], float]  # seconds of one epoch


def conversations(count: int) -> list[core.TrainingExample]:
    """Headlines as chats: the question, and the field as the answer."""
    lines = (ROOT / "examples" / "headlines.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines][:count]
    return [
        core.TrainingExample(
            messages=(
                core.Message("user", f"{row['text']} {QUESTION}"),
                core.Message("assistant", row["label"]),
            )
        )
        for row in rows
    ]


def ours(model: MlxModel, examples: Sequence[core.TrainingExample], masked: bool) -> Turn:
    """An epoch through `MlxModel.train`, on a handle with a separate adapter."""

    def turn() -> float:
        steps = len(examples) // BATCH
        config = core.TrainConfig(
            rank=RANK, scale=SCALE, num_layers=LAYERS, batch_size=BATCH, learning_rate=RATE,
            iterations=steps, mask_prompt=masked,
        )  # fmt: skip
        with model.with_adapter(None) as handle:
            training = handle.train(examples, config)
            started = time.perf_counter()
            assert sum(1 for _ in training) == steps
            return time.perf_counter() - started

    return turn


def mlx_lms(directory: Path, rows: Sequence[tuple[list[int], int]], *, compiled: bool) -> Turn:
    """An epoch through mlx-lm's trainer, on the same token ids."""
    trainer: Any = importlib.import_module("mlx_lm.tuner.trainer")
    tuner: Any = importlib.import_module("mlx_lm.tuner.utils")
    optimizers: Any = importlib.import_module("mlx.optimizers")
    load_model: Any = importlib.import_module("mlx_lm.utils").load_model
    with mx.stream(mx.cpu):
        network, _ = load_model(directory)
        network.freeze()
        tuner.linear_to_lora_layers(network, LAYERS, {"rank": RANK, "scale": SCALE, "dropout": 0.0})

    def turn() -> float:
        (mx.enable_compile if compiled else mx.disable_compile)()
        steps = len(rows) // BATCH
        with tempfile.TemporaryDirectory() as place, mx.stream(mx.cpu), Silence():
            args = trainer.TrainingArgs(
                batch_size=BATCH, iters=steps, steps_per_report=steps, steps_per_save=10**9,
                adapter_file=f"{place}/adapters.safetensors",
            )  # fmt: skip
            started = time.perf_counter()
            trainer.train(network, optimizers.AdamW(RATE), rows, args=args)
            return time.perf_counter() - started

    return turn


class Silence:
    """Keeps stdout quiet: mlx-lm prints a table."""

    def __enter__(self) -> None:
        self._out = os.dup(1)
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._out, 1)
        os.close(self._out)


def speed(directory: Path, batches: int, turns: int) -> dict[str, Any]:
    """Tokens/s of each, of prompts that are learned and of masked ones."""
    mx.set_default_device(mx.cpu)
    examples = conversations(batches * BATCH)
    figures: dict[str, Any] = {}
    with core.load_model(directory, backend="mlx_cpu") as model:
        assert isinstance(model, MlxModel)
        for masked in (False, True):
            config = core.TrainConfig(mask_prompt=masked)
            rows = [
                ([*row.ids], row.learned[0] if masked else 0)
                for row in model.training_rows(examples, config)
            ]
            tokens = sum(len(ids) - 1 for ids, _ in rows)
            contestants = {"core": ours(model, examples, masked)}
            contestants["mlx_lm"] = mlx_lms(directory, rows, compiled=False)
            if shutil.which("g++"):
                contestants["mlx_lm compiled"] = mlx_lms(directory, rows, compiled=True)
            for turn in contestants.values():
                turn()  # what is done once
            seconds = by_turns(contestants, turns)
            rates = {name: tokens / statistics.median(took) for name, took in seconds.items()}
            peer = max(rate for name, rate in rates.items() if name != "core")
            figures["masked" if masked else "whole"] = {
                "tokens": tokens, "longest": max(len(ids) for ids, _ in rows),
                "tokens_per_second": rates, "ratio": rates["core"] / peer, "seconds": seconds,
            }  # fmt: skip
    return figures


def by_turns(contestants: Mapping[str, Turn], turns: int) -> dict[str, list[float]]:
    """The seconds of each; no one is always the first of its round."""
    names, took = [*contestants], {name: list[float]() for name in contestants}
    for turn in range(turns):
        first = turn % len(names)
        for name in [*names, *names][first : first + len(names)]:
            took[name].append(contestants[name]())
    return took


def memory() -> dict[str, Any]:
    """The peak of a step on a deep random model, with gradient checkpointing and without."""
    peaks = {}
    with tempfile.TemporaryDirectory() as place:
        deep_model(Path(place))
        for again in (False, True):
            with core.load_model(place, backend="mlx_cpu") as model:
                assert isinstance(model, MlxModel)
                config = core.TrainConfig(num_layers=32, iterations=2, gradient_checkpointing=again)
                steps = model.train([core.TrainingExample(text="ab" * 64)] * 4, config)
                model.reset_peak_memory()
                list(steps)
                peaks["with" if again else "without"] = model.memory().peak_bytes
    return {"peak_bytes": peaks, "ratio": peaks["with"] / peaks["without"]}


def deep_model(directory: Path) -> None:
    """A random model of 32 layers, with a tokenizer of bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    (directory / "config.json").write_text(json.dumps(DEEP))
    shapes = expected_tensors(parse_config(DEEP, "config"))
    mx.save_safetensors(
        str(directory / "model.safetensors"),
        {name: mx.random.normal(shape, scale=0.05) for name, shape in shapes.items()},
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))


def tell(figures: Mapping[str, Any]) -> bool:
    """Print a table; return whether all marks are met."""
    met = True
    for name, part in figures.get("speed", {}).items():
        for who, rate in part["tokens_per_second"].items():
            print(f"{name:7} {who:16} {rate:8.0f} tokens/s")
        met &= part["ratio"] >= MARKS["speed"]
        print(f"{name:7} core / the faster {part['ratio']:.2f} (mark {MARKS['speed']})")
    if "memory" in figures:
        part = figures["memory"]
        for who, peak in part["peak_bytes"].items():
            print(f"memory  {who:16} {peak / 1e6:8.0f} MB")
        met &= part["ratio"] <= MARKS["memory"]
        print(f"memory  with / without    {part['ratio']:.2f} (mark {MARKS['memory']})")
    return met


def main() -> int:
    """Measure the requested parts, write them and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--batches", type=int, default=18, help="of one turn; default, and most, 18"
    )
    parser.add_argument("--only", nargs="+", choices=MARKS, default=[*MARKS])
    parser.add_argument("--model", type=Path, help="default: SmolLM2-135M-Instruct")
    parser.add_argument("--json", type=Path, default=RESULT)
    given = parser.parse_args()
    directory = given.model or fetch(MODELS[0]).directory

    figures: dict[str, Any] = {"blas": BLAS.name, "cpus": os.cpu_count()}
    figures |= {"turns": given.turns, "batches": given.batches}
    if "memory" in given.only:
        figures["memory"] = memory()
    if "speed" in given.only:
        figures["speed"] = speed(Path(directory), given.batches, given.turns)
    given.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if tell(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
