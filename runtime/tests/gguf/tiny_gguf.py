"""Tiny GGUF files, written with the gguf package the way llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM = 64, 96, 4, 2, 16

Array = NDArray[np.float32]

_BYTE_TOKENS = [f"<0x{value:02X}>" for value in range(256)]
VOCABULARIES: Mapping[str, dict[str, Any]] = {
    "llama": {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"abc1Ġ", "ab"],
        "tokenizer.ggml.token_type": [3, 3, 3, 1, 1, 1, 1, 1, 1],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    },
    "gemma3": {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [
            *("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"),
            *_BYTE_TOKENS,
            *("a", "b", "▁", "▁a", "ab"),
        ],
        "tokenizer.ggml.token_type": [3] * 6 + [6] * 256 + [1] * 5,
        "tokenizer.ggml.scores": [-1000.0] * 6 + [0.0] * 256 + [-3.0, -4.0, -5.0, -1.0, -2.0],
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": False,
    },
}
OWN: Mapping[str, dict[str, Any]] = {
    "llama": {"rope.freq_base": 50_000.0, "rope.dimension_count": HEAD_DIM},
    "gemma3": {
        "rope.freq_base": 1_000_000.0,
        "attention.sliding_window": 8,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
    },
}


@dataclass
class TinyGguf:
    """What goes into the file; tests change it before `write`. ``hf``: the original weights."""

    architecture: str
    metadata: dict[str, Any]
    hf: dict[str, Array]
    tensors: dict[str, Array]
    quantized: dict[str, GGMLQuantizationType] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        writer = GGUFWriter(path, self.architecture)
        for key, value in self.metadata.items():
            _add(writer, key, value)
        for name, array in self.tensors.items():
            kind = self.quantized.get(name)
            data = array if kind is None else quantize(array, kind)
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    adders: dict[type, Callable[[str, Any], None]] = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    adders[type(value)](key, value)


def tiny_gguf(architecture: str = "llama", *, tied: bool = True) -> TinyGguf:
    """Return a file of an architecture (llama, gemma3) with random weights."""
    layers = 2 if architecture == "llama" else 7  # Gemma 3's seventh layer slides again
    vocabulary = VOCABULARIES[architecture]
    rows = len(vocabulary["tokenizer.ggml.tokens"])
    hf = _hf_weights(architecture, layers, rows, tied)
    sizes = {
        "block_count": layers,
        "context_length": 128,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    own = {f"{architecture}.{key}": value for key, value in (sizes | OWN[architecture]).items()}
    tensors = dict(_to_gguf(name, array, architecture) for name, array in hf.items())
    return TinyGguf(architecture, {**own, **vocabulary}, hf, tensors)


def _hf_weights(architecture: str, layers: int, rows: int, tied: bool) -> dict[str, Array]:
    random = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (rows, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        shapes |= {f"{prefix}.{name}.weight": shape for name, shape in _layer(architecture).items()}
    if not tied:
        shapes["lm_head.weight"] = (rows, HIDDEN)
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def _layer(architecture: str) -> dict[str, tuple[int, ...]]:
    gemma = {
        "self_attn.q_norm": (HEAD_DIM,),
        "self_attn.k_norm": (HEAD_DIM,),
        "pre_feedforward_layernorm": (HIDDEN,),
        "post_feedforward_layernorm": (HIDDEN,),
    }
    return {
        "input_layernorm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
        "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
        **(gemma if architecture == "gemma3" else {}),
    }


_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LLAMA_NAMES = {"post_attention_layernorm": "ffn_norm"}
_GEMMA_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def _to_gguf(name: str, array: Array, architecture: str) -> tuple[str, Array]:
    """What convert_hf_to_gguf.py does: rename, permute Llama's q and k, add Gemma's 1."""
    own = _LLAMA_NAMES if architecture == "llama" else _GEMMA_NAMES
    renamed = name
    for hf, gguf in (_NAMES | own).items():
        renamed = renamed.replace(hf, gguf)
    if architecture == "gemma3" and name.endswith("norm.weight"):
        return renamed, array + 1
    if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
        heads = HEADS if "q_proj" in name else KV_HEADS
        split = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
        return renamed, split.swapaxes(1, 2).reshape(array.shape)
    return renamed, array
