"""Write tiny random checkpoints and what transformers computes from them (see README.md).

For each checkpoint: weights as transformers saves them, and one directory per variant with
``config.json`` (transformers 5 keys), ``config.older.json`` (the same model in the keys of older
checkpoints) and ``reference.json``: float32 logits at the last position of each prompt. Some
variants also have ``keys.json``, the attention keys of one prompt, or ``states.json``, the hidden
states of every layer at the last position of each prompt. All of it is computed from the written
files, and logits and keys through both configs, which must agree to the bit.

A new architecture is a new entry in `checkpoints.CHECKPOINTS`, and, when it differs from Llama,
a function in `older_keys` that spells its config in the older keys.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch  # type: ignore[import-not-found, unused-ignore]
from transformers import (  # type: ignore[import-not-found, unused-ignore]
    AutoModelForCausalLM,
    DynamicCache,
    PreTrainedModel,
)

from .checkpoints import CHECKPOINTS, SMALL, VOCAB_SIZE, Checkpoint
from .older_keys import Config

HERE = Path(__file__).resolve().parent
# Around the window of 8, below it and well above it.
PROMPT_LENGTHS = (1, 2, 5, 7, 8, 9, 16, 23, 40)
NORM_STD = 0.3
BIAS_STD = 0.5  # init leaves biases at zero
# Linear, plain and llama3 rope; keys with a norm, with a norm and a bias, with neither.
KEYS_OF = (
    "gemma3-2-kv-heads-wide-untied/linear",
    "qwen3-2-kv-heads-biased/sliding",
    "llama-2-kv-heads-wide-sharded/llama3",
)
KEYS_LENGTH = 23  # of the prompt: almost three windows
# Scaled embeddings or plain ones, two norms a layer or four, windows and none.
STATES_OF = (
    "gemma2-1-kv-head/default",
    "gemma3-2-kv-heads-wide-untied/linear",
    "llama-2-kv-heads-wide-sharded/llama3",
    "mistral-1-kv-head-tied/sliding",
    "qwen2-1-kv-head-tied/default",
    "qwen3-2-kv-heads-biased/sliding",
)


def make_prompts() -> list[list[int]]:
    """Random token ids, one list per length."""
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randint(3, VOCAB_SIZE, (length,), generator=generator).tolist()
        for length in PROMPT_LENGTHS
    ]


def write_weights(checkpoint: Checkpoint, directory: Path) -> Config:
    """Random weights, norms and biases moved off their initial values; returns the config."""
    torch.manual_seed(checkpoint.seed)
    first = next(iter(checkpoint.variants.values()))
    options = copy.deepcopy({**SMALL, **checkpoint.options, **first})
    model = AutoModelForCausalLM.from_config(checkpoint.config(**options))
    with torch.no_grad():
        perturb(model, checkpoint)
    model.to(checkpoint.dtype).save_pretrained(directory, max_shard_size=checkpoint.max_shard_size)
    (directory / "generation_config.json").unlink()
    saved: Config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").unlink()
    return saved


def perturb(model: PreTrainedModel, checkpoint: Checkpoint) -> None:
    """Change in place what initialisation leaves at zero or one, and what is to be louder."""
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.add_(NORM_STD * torch.randn_like(weight))
        if name.endswith("bias"):
            weight.add_(BIAS_STD * torch.randn_like(weight))
        if "q_proj.weight" in name:
            weight.mul_(checkpoint.score_gain)
    # Gemma's norms multiply by 1 + weight; no other checkpoint has a gain.
    model.model.norm.weight.add_(checkpoint.logit_gain - 1)


def write_variant(checkpoint: Checkpoint, newer: Config, weights: Path, directory: Path) -> None:
    """Both configs of one variant, and the logits (and keys) that both give."""
    directory.mkdir()
    older = checkpoint.older(copy.deepcopy(newer))
    model, twin = load_model(newer, weights), load_model(older, weights)
    logits, keys = compute_logits(model), compute_keys(model)
    if (compute_logits(twin), compute_keys(twin)) != (logits, keys):
        raise SystemExit(f"{directory}: the older config is not the same model.")
    write_json(directory / "config.json", newer)
    write_json(directory / "config.older.json", older)
    (directory / "reference.json").write_text(rows_as_json(logits))
    if f"{checkpoint.name}/{directory.name}" in KEYS_OF:
        (directory / "keys.json").write_text(keys_as_json(keys))
    if f"{checkpoint.name}/{directory.name}" in STATES_OF:
        (directory / "states.json").write_text(keys_as_json(compute_states(model)))


def load_model(config: Config, weights: Path) -> PreTrainedModel:
    """The model that transformers makes of these files, in float32."""
    with assembled(config, weights) as directory:
        return AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager"
        )


def compute_logits(model: PreTrainedModel) -> list[list[float]]:
    """Logits at the last position of each prompt, alone and unpadded: [prompts][vocab]."""
    with torch.no_grad():
        return [model(torch.tensor([ids])).logits[0, -1].tolist() for ids in make_prompts()]


def compute_keys(model: PreTrainedModel) -> list[list[list[float]]]:
    """Keys behind rope of the prompt of `KEYS_LENGTH`: [layers][KV heads][position * head size]."""
    [prompt] = (ids for ids in make_prompts() if len(ids) == KEYS_LENGTH)
    cache = DynamicCache()  # made without a config, it keeps sliding layers whole
    with torch.no_grad():
        model(torch.tensor([prompt]), past_key_values=cache, use_cache=True)
    config = model.config
    shape = (1, config.num_key_value_heads, len(prompt), model.model.layers[0].self_attn.head_dim)
    if [layer.keys.shape for layer in cache.layers] != [shape] * config.num_hidden_layers:
        raise SystemExit(f"{config.model_type}: the cache does not hold every key.")
    return [[head.flatten().tolist() for head in layer.keys[0]] for layer in cache.layers]


def compute_states(model: PreTrainedModel) -> list[list[list[float]]]:
    """Hidden states at the last position of each prompt: [prompts][layers, embeddings first][H].

    The last layer's are behind the final norm, as transformers gives them.
    """
    with torch.no_grad():
        found = [model(torch.tensor([ids]), output_hidden_states=True) for ids in make_prompts()]
    return [[layer[0, -1].tolist() for layer in each.hidden_states] for each in found]


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


def rows_as_json(rows: Sequence[Sequence[float]], digits: int = 9) -> str:
    """One row a line; nine significant digits give every float32 back exactly."""
    lines = (", ".join(f"{value:.{digits}g}" for value in row) for row in rows)
    return "[\n" + ",\n".join(f"[{line}]" for line in lines) + "\n]\n"


def keys_as_json(layers: Sequence[Sequence[Sequence[float]]]) -> str:
    """One head or layer a line; seven significant digits keep each value within 5e-7 of it."""
    return "[" + ", ".join(rows_as_json(heads, digits=7).rstrip() for heads in layers) + "]\n"


def main() -> None:
    """Write everything anew."""
    parser = argparse.ArgumentParser(description="Write checkpoints and reference logits.")
    parser.add_argument("--output", type=Path, default=HERE / "data")
    output: Path = parser.parse_args().output
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    (output / "prompts.json").write_text(rows_as_json(make_prompts()))
    for checkpoint in CHECKPOINTS:
        weights = output / checkpoint.name / "weights"
        config = write_weights(checkpoint, weights)
        for name, changes in checkpoint.variants.items():
            write_variant(checkpoint, {**config, **changes}, weights, weights.parent / name)


if __name__ == "__main__":
    main()
