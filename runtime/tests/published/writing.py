"""Writes a publication's directory; the weights are drawn from its seed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .publications import Publication
from .shapes import Json, Vocabulary, shaped

Shape = tuple[int, ...]
HERE = Path(__file__).parent
_TEMPLATES = (HERE / "templates", HERE.parent / "chat_templates" / "templates")


def write(publication: Publication, directory: Path) -> Path:
    """Write every file that the publisher ships, small. The directory must exist."""
    vocabulary = publication.vocabulary()
    rows = _rows(publication, vocabulary)
    own = {
        "added_tokens_decoder": {str(token.id): token.decoded() for token in vocabulary.added},
        **publication.tokenizer_config,
    }
    config = _with_ids(publication.config, vocabulary)
    config.get("text_config", config)["vocab_size"] = rows

    source = template_of(publication)
    if publication.place == "tokenizer_config.json":
        own["chat_template"] = source
    elif publication.place == "chat_template.json":
        _write_json(directory / "chat_template.json", {"chat_template": source})
    else:
        (directory / "chat_template.jinja").write_bytes(source.encode())

    _write_json(directory / "config.json", config)
    _write_json(directory / "tokenizer.json", shaped(publication.shape, vocabulary))
    _write_json(directory / "tokenizer_config.json", own)
    _write_json(directory / "special_tokens_map.json", publication.special_tokens_map)
    generation = _with_ids(publication.generation_config, vocabulary)
    _write_json(directory / "generation_config.json", generation)
    for name, content in publication.others.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)
    _write_weights(publication, rows, directory)
    return directory


def template_of(publication: Publication) -> str:
    """Read the source of its chat template."""
    name = f"{publication.template}.jinja"
    [path] = [place / name for place in _TEMPLATES if (place / name).exists()]
    return path.read_bytes().decode()


def _rows(publication: Publication, vocabulary: Vocabulary) -> int:
    ids = [*vocabulary.tokens.values(), *(token.id for token in vocabulary.added)]
    return max(ids) + 1 + publication.padding


def _with_ids(config: Json, vocabulary: Vocabulary) -> Json:
    """Return a copy in which the tokens that are named are ids."""
    ids = {token.content: token.id for token in vocabulary.added}

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: replaced(item) for name, item in value.items()}
        if isinstance(value, list):
            return [replaced(item) for item in value]
        return ids.get(value, value) if isinstance(value, str) else value

    copied: Json = replaced(config)
    return copied


def _write_json(path: Path, value: Json) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


# ---------------------------------------------------------------- weights


def _write_weights(publication: Publication, rows: int, directory: Path) -> None:
    draw = np.random.RandomState(publication.seed)
    text = {
        publication.prefix + name: _drawn(shape, draw, around=_around(name, publication.family))
        for name, shape in _shapes(publication, rows).items()
    }
    if publication.family == "qwen3":  # the head is there, though it is the embedding
        text["lm_head.weight"] = text["model.embed_tokens.weight"]
    if publication.name.startswith("llama-2"):  # of transformers before 4.33
        text["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    vision = publication.config.get("vision_config")
    extra = _vision(vision, publication.text_config["hidden_size"]) if vision else {}
    tensors = text | {name: _drawn(shape, draw) for name, shape in extra.items()}

    count = publication.shards
    names = sorted(tensors)
    shards = [names[place::count] for place in range(count)]
    files = [f"model-{place + 1:05}-of-{count:05}.safetensors" for place in range(count)]
    if count == 1:
        files = ["model.safetensors"]
    for file, some in zip(files, shards, strict=True):
        _save(publication, {name: tensors[name] for name in some}, directory / file)
    if count > 1:
        files_of = {name: file for file, some in zip(files, shards, strict=True) for name in some}
        index = {"metadata": {"total_size": 0}, "weight_map": files_of}
        _write_json(directory / "model.safetensors.index.json", index)
    if "consolidated.safetensors" in publication.others:  # Mistral's own names
        other = {"tok_embeddings.weight": text["model.embed_tokens.weight"]}
        _save(publication, other, directory / "consolidated.safetensors")


def _shapes(publication: Publication, rows: int) -> dict[str, Shape]:
    """Return the shapes of the text model's tensors by their names in transformers."""
    config, family = publication.text_config, publication.family
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config.get("num_attention_heads", 8)  # Gemma 3's defaults, as its 4B one has none
    kv_heads = config.get("num_key_value_heads", 4)
    size = config.get("head_dim", 256 if family == "gemma3" else hidden // heads)

    layer: dict[str, Shape] = {
        "self_attn.q_proj.weight": (heads * size, hidden),
        "self_attn.k_proj.weight": (kv_heads * size, hidden),
        "self_attn.v_proj.weight": (kv_heads * size, hidden),
        "self_attn.o_proj.weight": (hidden, heads * size),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if family == "qwen2":
        layer |= {f"self_attn.{name}_proj.bias": (heads * size,) for name in "q"}
        layer |= {f"self_attn.{name}_proj.bias": (kv_heads * size,) for name in "kv"}
    if family in ("qwen3", "gemma3", "gemma3_text"):
        layer |= {f"self_attn.{name}_norm.weight": (size,) for name in "qk"}
    if family.startswith("gemma"):
        layer |= {f"{side}_feedforward_layernorm.weight": (hidden,) for side in ("pre", "post")}

    tied = config.get("tie_word_embeddings", family.startswith("gemma"))
    ends: dict[str, Shape] = {
        "model.embed_tokens.weight": (rows, hidden),
        "model.norm.weight": (hidden,),
        **({} if tied else {"lm_head.weight": (rows, hidden)}),
    }
    layers = [f"model.layers.{index}" for index in range(config["num_hidden_layers"])]
    return ends | {f"{one}.{name}": shape for one in layers for name, shape in layer.items()}


def _vision(config: Mapping[str, Any], hidden: int) -> dict[str, Shape]:
    """Return the shapes of SigLIP and of the projector, by their names in Gemma 3's checkpoints."""
    width, inner, patch = config["hidden_size"], config["intermediate_size"], config["patch_size"]
    places = (config["image_size"] // patch) ** 2
    model, layer = "vision_tower.vision_model.", "vision_tower.vision_model.encoder.layers.0."

    def linear(name: str, rows: int, columns: int) -> Iterator[tuple[str, Shape]]:
        yield f"{name}.weight", (rows, columns)
        yield f"{name}.bias", (rows,)

    norms = [f"{layer}layer_norm1", f"{layer}layer_norm2", f"{model}post_layernorm"]
    return {
        "multi_modal_projector.mm_input_projection_weight": (width, hidden),
        "multi_modal_projector.mm_soft_emb_norm.weight": (width,),
        f"{model}embeddings.patch_embedding.weight": (width, 3, patch, patch),
        f"{model}embeddings.patch_embedding.bias": (width,),
        f"{model}embeddings.position_embedding.weight": (places, width),
        **{f"{name}.{part}": (width,) for name in norms for part in ("weight", "bias")},
        **dict(linear(f"{layer}mlp.fc1", inner, width)),
        **dict(linear(f"{layer}mlp.fc2", width, inner)),
        **{
            tensor: shape
            for name in ("q_proj", "k_proj", "v_proj", "out_proj")
            for tensor, shape in linear(f"{layer}self_attn.{name}", width, width)
        },
    }


def _around(name: str, family: str) -> float:
    """Return the mean of a tensor: norms multiply, Gemma's by one more than they say."""
    return 1.0 if name.endswith("norm.weight") and not family.startswith("gemma") else 0.0


def _drawn(shape: Shape, draw: np.random.RandomState, around: float = 0.0) -> NDArray[np.float32]:
    """Draw random values, large enough for a mistake to show."""
    return np.asarray(around + 0.2 * draw.standard_normal(shape), np.float32)


def _save(publication: Publication, tensors: Mapping[str, NDArray[np.float32]], path: Path) -> None:
    """Write a safetensors file in the publication's dtype, which numpy may not have."""
    dtype = {"bfloat16": "BF16", "float16": "F16"}[publication.dtype]
    header: Json = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    start = 0
    for name, values in tensors.items():
        parts.append(_packed(values, publication.dtype))
        place = [start, start + len(parts[-1])]
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": place}
        start = place[1]
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(parts))


def _packed(values: NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "float16":
        return values.astype(np.float16).tobytes()
    return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()  # the upper half of each
