"""Tiny models of every family, from the factories of the plugins' own tests."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

PLUGINS = Path(__file__).parents[2] / "plugins"
TEMPLATE = (
    "{% for message in messages %}{{ bos_token }}{{ message.role }}: "
    "{{ message['content'] | trim }}{% endfor %}{% if add_generation_prompt %}no {% endif %}"
)
PIECES = ["<unk>", "<s>", "</s>", "\u2581", "a", "b", "\u2581a", "\u2581b", "ab"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
CHECKPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3": ("llama", {"rope_scaling": LLAMA3_ROPE}),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 8, "tie_word_embeddings": True}),
    "gemma2": ("gemma2", {}),
    "gemma3": ("gemma3", {}),
    "sharded": ("llama", {}),
    "quantised": ("llama", {"hidden_size": 64, "intermediate_size": 64}),
    "unigram": ("gemma3", {}),
}


def checkpoint(place: Path, name: str = "llama") -> Path:
    """A directory for MLX, of `CHECKPOINTS`, with every file that a directory may have."""
    family, changes = CHECKPOINTS[name]
    write = _namespace("mlx_native")["checkpoint"].__wrapped__(place)
    directory: Path = write(family, name, **changes)
    {"sharded": _shard, "quantised": _quantize, "unigram": _unigram}.get(name, lambda _: None)(
        directory
    )
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    settings = directory / "tokenizer_config.json"
    own = {**json.loads(settings.read_text()), "bos_token": {"content": "<s>", "special": True}}
    settings.write_text(json.dumps(own))
    ends = {"eos_token_id": [1], "bos_token_id": 0, "temperature": 0.7}
    (directory / "generation_config.json").write_text(json.dumps(ends))
    return directory


def gguf(place: Path, name: str = "llama") -> Path:
    """A file for llama.cpp: ``llama``, ``sentencepiece`` or ``lora``."""
    factories = _namespace("llama_cpp")
    change: dict[str, object] = {"tokenizer.chat_template": TEMPLATE}
    if name == "sentencepiece":
        factories["WORDS"][:] = [*PIECES, *BYTES]
        change |= _sentencepiece()
    fixture = factories["lora_gguf" if name == "lora" else "tiny_gguf"]
    path: Path = fixture.__wrapped__(place)(name, **{} if name == "lora" else {"change": change})
    return path


def copied(source: Path, place: Path) -> Path:
    """The model again, to be changed."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, place)
    return place


def _namespace(plugin: str) -> dict[str, Any]:
    return runpy.run_path(str(PLUGINS / plugin / "tests" / "conftest.py"))


def _sentencepiece() -> dict[str, object]:
    """What a file says of a SentencePiece vocabulary."""
    size = len(PIECES) + len(BYTES)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.scores": [-float(i) for i in range(size)],
        "tokenizer.ggml.token_type": [2, 3, 3, *[1] * (len(PIECES) - 3), *[6] * len(BYTES)],
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def _unigram(directory: Path) -> None:
    """A tokenizer as T5's and Gemma's converters write it, a compiled normalizer included."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    words = list(json.loads((directory / "tokenizer.json").read_text())["model"]["vocab"])
    words = [word.replace("\u0120", "\u2581") for word in words]
    tokenizer = Tokenizer(models.Unigram([(w, -float(i)) for i, w in enumerate(words)], unk_id=0))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(directory / "tokenizer.json"))


def _shard(directory: Path) -> None:
    import mlx.core as mx

    whole = directory / "model.safetensors"
    tensors = mx.load(str(whole))
    assert isinstance(tensors, dict)
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in shards.items():
        mx.save_safetensors(str(directory / file), {name: tensors[name] for name in held})
    whole.unlink()
    weight_map = {name: file for file, held in shards.items() for name in held}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def _quantize(directory: Path) -> None:
    import mlx.core as mx

    whole = directory / "model.safetensors"
    tensors = mx.load(str(whole))
    assert isinstance(tensors, dict)
    packed: dict[str, mx.array] = {}
    for name, tensor in tensors.items():
        if tensor.ndim < 2:
            packed[name] = tensor
            continue
        layer = name.removesuffix(".weight")
        parts = mx.quantize(tensor, group_size=32, bits=4)
        packed |= dict(zip((name, f"{layer}.scales", f"{layer}.biases"), parts, strict=True))
    mx.eval(packed)  # before the file that they come from is written over
    mx.save_safetensors(str(whole), packed)
    config = json.loads((directory / "config.json").read_text())
    config["quantization"] = {"bits": 4, "group_size": 32}
    config["quantization"]["model.layers.0.mlp.up_proj"] = {"bits": 4, "group_size": 32}
    (directory / "config.json").write_text(json.dumps(config))
