"""Conversion of GGUF's tensor names and conventions to those of transformers.

GGUF names: https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py. The changes
of llama.cpp's ``convert_hf_to_gguf.py`` to the weights are undone here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}
_GEMMA_INNER = _INNER | {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


@dataclass(frozen=True, slots=True)
class Conventions:
    """The differences between one GGUF architecture and its transformers counterpart.

    ``permuted``: rows of q and k are reordered for llama.cpp's interleaved RoPE. ``norm_offset``:
    norm weights include the +1 that transformers adds when it runs.
    """

    inner: Mapping[str, str] = field(default_factory=lambda: _INNER)
    permuted: bool = False
    norm_offset: bool = False


CONVENTIONS: Mapping[str, Conventions] = {
    "llama": Conventions(permuted=True),
    "gemma3": Conventions(inner=_GEMMA_INNER, norm_offset=True),
}
"""The conventions by ``general.architecture``."""

# Tensors that are not weights: config.json has the same information.
DERIVED = frozenset({"rope_freqs.weight"})


def hf_name(gguf_name: str, conventions: Conventions) -> str | None:
    """Return the transformers name of a tensor; None if unknown."""
    stem, _, kind = gguf_name.rpartition(".")
    if stem in _OUTER and kind == "weight":
        return f"{_OUTER[stem]}.{kind}"
    match = _BLOCK.fullmatch(gguf_name)
    if match is None or match[2] not in conventions.inner:
        return None
    return f"model.layers.{match[1]}.{conventions.inner[match[2]]}.{match[3]}"


def restored(
    name: str, array: NDArray[np.float32], conventions: Conventions, config: Mapping[str, Any]
) -> NDArray[np.float32]:
    """Undo GGUF's conventions: the weights of tensor ``name`` as transformers stores them."""
    if conventions.norm_offset and name.endswith("norm.weight"):
        return array - 1
    if conventions.permuted and ".q_proj." in name:
        return unpermuted(array, config["num_attention_heads"])
    if conventions.permuted and ".k_proj." in name:
        return unpermuted(array, config["num_key_value_heads"])
    return array


def unpermuted(array: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Put rows ``[heads, dim/2, 2]`` back to ``[heads, 2, dim/2]`` (undoes LlamaModel.permute)."""
    pairs = array.shape[0] // heads // 2
    return array.reshape(heads, pairs, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def permuted(array: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Put rows ``[heads, 2, dim/2]`` in llama.cpp's order, ``[heads, dim/2, 2]``."""
    pairs = array.shape[0] // heads // 2
    return array.reshape(heads, 2, pairs, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
