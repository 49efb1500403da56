"""A checkpoint of a few kilobytes that says what its prompt ends with asks for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

USER, NAN = "<|user|>", "#"
SIZE = 16
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": SIZE,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
NEXT = {"a": "b", "b": "c", "c": USER, USER: "d", "d": "e", "$": "!", "%": NAN}
"""What follows each of these texts; behind "!" a logit is +infinity, behind `NAN` all are NaN."""


def write(directory: Path) -> Path:
    """Write the model: a byte-level tokenizer with one special token, and weights."""
    directory.mkdir()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in ("</s>", USER)]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))

    words = tokenizer.get_vocab_size()
    (directory / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": words}))
    vocabulary = tokenizer.get_vocab()
    ids = {text: vocabulary[text] for text in (*NEXT, *NEXT.values(), "~")}
    save_file(_weights(words, ids), directory / "model.safetensors", {"format": "pt"})
    return directory


def _weights(words: int, ids: dict[str, int]) -> dict[str, npt.NDArray[np.float32]]:
    """The layer adds nothing; each text has a coordinate, which leads to the next one."""
    layer = "model.layers.0."
    shapes = {
        "self_attn.q_proj": (16, SIZE),
        "self_attn.k_proj": (8, SIZE),
        "self_attn.v_proj": (8, SIZE),
        "self_attn.o_proj": (SIZE, 16),
        "mlp.gate_proj": (16, SIZE),
        "mlp.up_proj": (16, SIZE),
        "mlp.down_proj": (SIZE, 16),
    }
    weights: dict[str, npt.NDArray[np.float64]] = {
        f"{layer}{name}.weight": np.zeros(shape) for name, shape in shapes.items()
    }
    for name in ("input_layernorm", "post_attention_layernorm"):
        weights[f"{layer}{name}.weight"] = np.ones(SIZE)
    weights["model.norm.weight"] = np.ones(SIZE)
    embedding, head = np.full((words, SIZE), 0.01), np.zeros((words, SIZE))
    for place, (text, following) in enumerate(NEXT.items()):
        embedding[ids[text], place] = 10.0
        head[ids[following], place] = 10.0
    embedding[:, SIZE - 1] = 0.0
    embedding[ids["!"], SIZE - 1] = 10.0
    head[ids["~"], SIZE - 1] = 3e38
    embedding[ids[NAN]] = np.nan
    return {
        name: np.asarray(array, np.float32)
        for name, array in {
            **weights,
            "model.embed_tokens.weight": embedding,
            "lm_head.weight": head,
        }.items()
    }
