"""Write tiny random checkpoints and what transformers computes from them (see README.md).

For each checkpoint: weights as transformers saves them, and one directory per rope variant with
``config.json`` (transformers 5 keys), ``config.older.json`` (the same model in the keys of older
checkpoints) and ``reference.json``: float32 logits at the last position of each prompt. The
logits are computed from the written files, through both configs, which must agree to the bit.

A new architecture is a new entry in `CHECKPOINTS`, and, when it differs from Llama, a function
that spells its config in the older keys.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
from transformers import (  # type: ignore[import-not-found, unused-ignore]
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    PreTrainedConfig,
)

Config = dict[str, Any]

HERE = Path(__file__).resolve().parent
VOCAB_SIZE = 96
WINDOW = 8
# Around the window, below it and well above it.
PROMPT_LENGTHS = (1, 2, 5, 7, 8, 9, 16, 23, 40)
# At init's usual 0.02 all attention is nearly uniform, and a wrong rope or mask would not show.
WEIGHT_STD = 0.2
NORM_STD = 0.3
SMALL: Config = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": WEIGHT_STD,
}

PLAIN: Config = {"rope_type": "default", "rope_theta": 10_000.0}
LLAMA3: Config = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # Short, so that all three of its frequency bands are used by the prompts here.
    "original_max_position_embeddings": 16,
}
GEMMA_PLAIN: Config = {
    "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "sliding_attention": PLAIN,
}
GEMMA_LINEAR: Config = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1_000_000.0, "factor": 8.0},
    "sliding_attention": PLAIN,
}


def older_llama(config: Config) -> Config:
    """Llama's config in the keys before transformers 5: rope_theta and rope_scaling."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    if rope["rope_type"] == "linear":
        rope["type"] = rope.pop("rope_type")  # the spelling when linear scaling was new
    if config["head_dim"] * config["num_attention_heads"] == config["hidden_size"]:
        del config["head_dim"]  # was implied
    config["torch_dtype"] = config.pop("dtype")
    return config


def older_gemma3(config: Config) -> Config:
    """Gemma 3's config in its first keys: rope_local_base_freq and sliding_window_pattern."""
    rope = config.pop("rope_parameters")
    config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    full = rope["full_attention"]
    config["rope_theta"] = full.pop("rope_theta")
    config["rope_scaling"] = None if full["rope_type"] == "default" else full
    config["sliding_window_pattern"] = config.pop("_sliding_window_pattern")
    if config["layer_types"] == layer_types(
        config["sliding_window_pattern"], config["num_hidden_layers"]
    ):
        del config["layer_types"]  # came later; for a regular pattern it was implied
    config["torch_dtype"] = config.pop("dtype")
    return config


def layer_types(pattern: int, layers: int) -> list[str]:
    """Every ``pattern``-th layer sees everything, the others a window."""
    kinds = ("full_attention", "sliding_attention")
    return [kinds[bool((i + 1) % pattern)] for i in range(layers)]


@dataclass(frozen=True)
class Checkpoint:
    """Random weights, and the rope variants that are computed from them."""

    name: str
    config: type[PreTrainedConfig]
    older: Callable[[Config], Config]
    ropes: dict[str, Config]
    options: Config
    dtype: torch.dtype = torch.bfloat16
    max_shard_size: str = "1GB"


CHECKPOINTS = (
    Checkpoint(
        name="llama-1-kv-head-tied",
        config=LlamaConfig,
        older=older_llama,
        ropes={"default": PLAIN, "linear": {**PLAIN, "rope_type": "linear", "factor": 4.0}},
        options={"num_hidden_layers": 2, "num_key_value_heads": 1, "tie_word_embeddings": True},
        dtype=torch.float16,
    ),
    Checkpoint(
        name="llama-2-kv-heads-wide-sharded",
        config=LlamaConfig,
        older=older_llama,
        ropes={"default": {**PLAIN, "rope_theta": 500_000.0}, "llama3": LLAMA3},
        options={"num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 24},
        max_shard_size="80KB",
    ),
    Checkpoint(
        name="llama-4-kv-heads",
        config=LlamaConfig,
        older=older_llama,
        ropes={"llama3": LLAMA3},
        options={"num_hidden_layers": 2, "num_key_value_heads": 4, "rms_norm_eps": 1e-5},
    ),
    Checkpoint(
        name="gemma3-1-kv-head",
        config=Gemma3TextConfig,
        older=older_gemma3,
        ropes={"default": GEMMA_PLAIN, "linear": GEMMA_LINEAR},
        options={
            "num_hidden_layers": 4,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": WINDOW,
            "sliding_window_pattern": 2,
        },
    ),
    Checkpoint(
        name="gemma3-2-kv-heads-wide-untied",
        config=Gemma3TextConfig,
        older=older_gemma3,
        ropes={"linear": GEMMA_LINEAR},
        options={
            "num_hidden_layers": 3,
            "num_key_value_heads": 2,
            "head_dim": 24,
            "query_pre_attn_scalar": 20,  # not head_dim, so that one cannot stand in for the other
            "sliding_window": WINDOW,
            # no regular pattern: contradicts the `_sliding_window_pattern` that is saved with it
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "tie_word_embeddings": False,
        },
    ),
    Checkpoint(
        name="gemma3-4-kv-heads",
        config=Gemma3TextConfig,
        older=older_gemma3,
        ropes={"linear": GEMMA_LINEAR},
        options={
            "num_hidden_layers": 3,
            "num_key_value_heads": 4,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": WINDOW,
            "sliding_window_pattern": 3,
        },
    ),
)


def make_prompts() -> list[list[int]]:
    """Random token ids, one list per length."""
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randint(3, VOCAB_SIZE, (length,), generator=generator).tolist()
        for length in PROMPT_LENGTHS
    ]


def write_weights(checkpoint: Checkpoint, seed: int, directory: Path) -> Config:
    """Random weights, norms moved off their initial ones and zeros; returns the config."""
    torch.manual_seed(seed)
    rope = next(iter(checkpoint.ropes.values()))
    config = checkpoint.config(**SMALL, **checkpoint.options, rope_parameters=copy.deepcopy(rope))
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(NORM_STD * torch.randn_like(weight))
    model.to(checkpoint.dtype).save_pretrained(directory, max_shard_size=checkpoint.max_shard_size)
    (directory / "generation_config.json").unlink()
    saved: Config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").unlink()
    return saved


def write_variant(checkpoint: Checkpoint, newer: Config, weights: Path, directory: Path) -> None:
    """Both configs of one rope variant, and the logits that both give."""
    directory.mkdir()
    logits = compute_logits(newer, weights)
    older = checkpoint.older(copy.deepcopy(newer))
    if compute_logits(older, weights) != logits:
        raise SystemExit(f"{directory}: the older config is not the same model.")
    write_json(directory / "config.json", newer)
    write_json(directory / "config.older.json", older)
    (directory / "reference.json").write_text(rows_as_json(logits))


def compute_logits(config: Config, weights: Path) -> list[list[float]]:
    """Logits at the last position of each prompt, alone and unpadded: [prompts][vocab]."""
    with assembled(config, weights) as directory:
        model = AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager"
        )
    with torch.no_grad():
        return [model(torch.tensor([ids])).logits[0, -1].tolist() for ids in make_prompts()]


@contextmanager
def assembled(config: Config, weights: Path) -> Iterator[Path]:
    """A model directory that holds the weights and this config."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "model"
        shutil.copytree(weights, directory)
        write_json(directory / "config.json", config)
        yield directory


def write_json(path: Path, value: Config) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def rows_as_json(rows: Sequence[Sequence[float]]) -> str:
    """One row a line; nine significant digits give every float32 back exactly."""
    lines = (", ".join(f"{value:.9g}" for value in row) for row in rows)
    return "[\n" + ",\n".join(f"[{line}]" for line in lines) + "\n]\n"


def main() -> None:
    """Write everything anew."""
    parser = argparse.ArgumentParser(description="Write checkpoints and reference logits.")
    parser.add_argument("--output", type=Path, default=HERE / "data")
    output: Path = parser.parse_args().output
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    (output / "prompts.json").write_text(rows_as_json(make_prompts()))
    for seed, checkpoint in enumerate(CHECKPOINTS):
        weights = output / checkpoint.name / "weights"
        config = write_weights(checkpoint, seed, weights)
        for name, rope in checkpoint.ropes.items():
            variant = {**config, "rope_parameters": rope}
            write_variant(checkpoint, variant, weights, weights.parent / name)


if __name__ == "__main__":
    main()
