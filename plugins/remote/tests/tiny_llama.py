"""A GGUF file of some hundred kilobytes: random weights, and a token for each byte.

So its texts are full of characters that several tokens share, which llama.cpp's server streams
otherwise than others.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

_HIDDEN, _HEADS, _KV_HEADS, _FEED_FORWARD, _CONTEXT = 32, 4, 2, 48, 256
_SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
_MERGES = ["Ġ a", "Ġ b", "a b", "Ġa b", "Ġ y", "Ġy e", "Ġye s", "Ġ n", "Ġn o"]
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
_CONTROL, _NORMAL = 3, 1


def write_model(path: Path) -> Path:
    """Write the file; always the same."""
    words = [*_SPECIAL, *_byte_letters(), *(merge.replace(" ", "") for merge in _MERGES)]
    writer = gguf.GGUFWriter(path, "llama")
    for name, number in _SIZES.items():
        writer.add_uint32(f"llama.{name}", number)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "default")
    writer.add_array("tokenizer.ggml.tokens", words)
    kinds = [_CONTROL] * len(_SPECIAL) + [_NORMAL] * (len(words) - len(_SPECIAL))
    writer.add_array("tokenizer.ggml.token_type", kinds)
    writer.add_array("tokenizer.ggml.merges", _MERGES)
    writer.add_uint32("tokenizer.ggml.bos_token_id", 0)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 1)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_string("tokenizer.chat_template", _TEMPLATE)
    for name, values in _weights(len(words)).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


_SIZES = {
    "context_length": _CONTEXT,
    "embedding_length": _HIDDEN,
    "block_count": 1,
    "feed_forward_length": _FEED_FORWARD,
    "attention.head_count": _HEADS,
    "attention.head_count_kv": _KV_HEADS,
    "rope.dimension_count": _HIDDEN // _HEADS,
}


def _byte_letters() -> list[str]:
    """The letter that GPT-2's tokenizer writes for each byte."""
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printed else next(others)) for byte in range(0x100)]


def _weights(words: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(11)
    kv = _HIDDEN * _KV_HEADS // _HEADS
    block = {
        "attn_norm": (_HIDDEN,),
        "attn_q": (_HIDDEN, _HIDDEN),
        "attn_k": (kv, _HIDDEN),
        "attn_v": (kv, _HIDDEN),
        "attn_output": (_HIDDEN, _HIDDEN),
        "ffn_norm": (_HIDDEN,),
        "ffn_gate": (_FEED_FORWARD, _HIDDEN),
        "ffn_up": (_FEED_FORWARD, _HIDDEN),
        "ffn_down": (_HIDDEN, _FEED_FORWARD),
    }
    shapes: dict[str, tuple[int, ...]] = {f"blk.0.{name}": shape for name, shape in block.items()}
    shapes |= {"token_embd": (words, _HIDDEN), "output_norm": (_HIDDEN,)}
    shapes |= {"output": (words, _HIDDEN)}
    return {
        f"{name}.weight": random.normal(0.0, 0.5, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
