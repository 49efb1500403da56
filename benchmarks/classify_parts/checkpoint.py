"""A model directory with random weights: the work of a real model, without its knowledge.

    python -m benchmarks.classify_parts.checkpoint OUT_DIR TOKENIZER_DIR [--config JSON]

A separate process, so that a GPU's memory is free again afterwards.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PATTERN = 6  # every sixth layer attends to everything, the others to a window

GEMMA_3_1B: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "vocab_size": 262144,
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "num_hidden_layers": 26,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": None,
    "sliding_window": 512,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "sliding_window_pattern": _PATTERN,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}


def full_config(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Gemma-3-1B's config.json with these changes, and the kind of each layer."""
    config = {**GEMMA_3_1B, **changes}
    numbers = range(1, config["num_hidden_layers"] + 1)
    config["layer_types"] = [
        "sliding_attention" if number % _PATTERN else "full_attention" for number in numbers
    ]
    return config


def make_checkpoint(out: Path, tokenizer: Path, changes: Mapping[str, Any]) -> None:
    """Write config.json, bfloat16 weights, and the tokenizer of another model directory.

    The tokenizer's vocabulary must be the config's. Weights are normal, scaled so that
    activations keep their size; the same in every run.
    """
    from core_mlx_native.cpu.blas import ensure_blas

    ensure_blas()  # before mlx
    import mlx.core as mx

    from core_runtime.checkpoint.config import load_config
    from core_runtime.checkpoint.tensors import expected_tensors

    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(full_config(changes), indent=2), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, out / name)
    mx.random.seed(0)
    tensors = {}
    for name, shape in expected_tensors(load_config(out)).items():
        scale = 1 / math.sqrt(shape[-1]) if len(shape) == 2 else 0.02
        tensors[name] = (mx.random.normal(shape) * scale).astype(mx.bfloat16)
        mx.eval(tensors[name])  # one float32 original at a time
    mx.save_safetensors(str(out / "model.safetensors"), tensors, {"format": "pt"})


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Make a model directory with random weights.")
    parser.add_argument("out", type=Path)
    parser.add_argument("tokenizer", type=Path, help="a Gemma 3 directory")
    parser.add_argument("--config", type=json.loads, default={}, help="changes, as JSON")
    arguments = parser.parse_args()
    make_checkpoint(arguments.out, arguments.tokenizer, arguments.config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
