"""The tensors that a checkpoint must contain, and a check of all that it contains.

Names are transformers'. Missing, extra and mis-shaped tensors are reported in one error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from core.errors import InvalidModelError
from core_runtime.checkpoint.config import ModelConfig
from core_runtime.checkpoint.files import Header, Shape
from core_runtime.checkpoint.names import stranger
from core_runtime.checkpoint.quantization import Packing

_HEAD, _EMBEDDING = "lm_head", "model.embed_tokens"
FLOATS = {"F32", "F16", "BF16"}
_SHOWN = 12


def expected_tensors(config: ModelConfig) -> dict[str, Shape]:
    """Return the name and shape of every tensor, linear weights as ``(out, in)``."""
    tensors: dict[str, Shape] = {
        "model.embed_tokens.weight": (config.vocab_size, config.hidden_size),
        "model.norm.weight": (config.hidden_size,),
    }
    if not config.tied_head:
        tensors["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    for index in range(config.num_layers):
        for name, shape in _layer(config):
            tensors[f"model.layers.{index}.{name}"] = shape
    return tensors


def _layer(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim

    # Attention.
    yield from _linear("self_attn.q_proj", queries, hidden, config.qkv_bias)
    yield from _linear("self_attn.k_proj", keys, hidden, config.qkv_bias)
    yield from _linear("self_attn.v_proj", keys, hidden, config.qkv_bias)
    yield from _linear("self_attn.o_proj", hidden, queries, config.output_bias)

    # The gated feed-forward, then the norms.
    yield from _linear("mlp.gate_proj", inner, hidden, config.mlp_bias)
    yield from _linear("mlp.up_proj", inner, hidden, config.mlp_bias)
    yield from _linear("mlp.down_proj", hidden, inner, config.mlp_bias)
    for name in norm_names(config):
        yield f"{name}.weight", (hidden,)
    if config.family.qk_norm:
        yield "self_attn.q_norm.weight", (config.head_dim,)
        yield "self_attn.k_norm.weight", (config.head_dim,)


def norm_names(config: ModelConfig) -> tuple[str, ...]:
    """Return the norms over the hidden size of one layer, in the order of their application."""
    if config.family.sandwich_norms:
        return (
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        )
    return ("input_layernorm", "post_attention_layernorm")


def _linear(name: str, rows: int, columns: int, bias: bool) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (rows, columns)
    if bias:
        yield f"{name}.bias", (rows,)


def checked_tensors(
    header: Header, config: ModelConfig, directory: Path, equal: Callable[[str, str], bool]
) -> tuple[ModelConfig, dict[str, Packing]]:
    """Return the config with the LM head that is stored, and the packing of each packed matrix.

    The latter by its name without ``.weight``. Raises `InvalidModelError` that lists the tensors
    that do not fit the config.

    Some exports store a head although config.json ties it to the embedding. If the two differ,
    config.json is wrong, and transformers (5) uses both, too. ``equal`` compares the data of two
    stored tensors, in this case only.
    """
    head = [name for name in header if name.startswith(f"{_HEAD}.")]
    if not config.tied_head or not head:
        return config, _packings(header, config, directory)

    untied = replace(config, tied_head=False)
    stored = _packings(header, untied, directory)
    for name in head:
        part = name.replace(_HEAD, _EMBEDDING, 1)
        if part not in header or not equal(name, part):
            return untied, stored
    stored.pop(_HEAD, None)
    return config, stored


def _packings(header: Header, config: ModelConfig, directory: Path) -> dict[str, Packing]:
    packed: dict[str, Packing] = {}
    problems: list[str] = []
    used: set[str] = set()

    for name, shape in expected_tensors(config).items():
        layer = name.removesuffix(".weight")
        packing = _packing(layer, shape, header, config)
        if packing is not None:
            packed[layer] = packing
        parts = _stored(name, shape, packing)
        used.update(parts)
        problems += _problems(name, shape, parts, packing, header)

    # Unused tensors are problems too.
    extra = sorted(header.keys() - used)
    problems += [f"{name} is not part of this model{stranger(name)}" for name in extra]
    refuse_unfit(problems, directory)
    return packed


Stored = dict[str, tuple[set[str], Shape]]  # the dtypes that a tensor may have, and its shape


def _packing(layer: str, shape: Shape, header: Header, config: ModelConfig) -> Packing | None:
    if config.quantization is None or len(shape) != 2:
        return None
    kind, _ = header.get(f"{layer}.weight", ("", ()))
    return config.quantization.packing(layer, kind == "U32" or f"{layer}.scales" in header)


def _stored(name: str, shape: Shape, packing: Packing | None) -> Stored:
    """Return the file's tensors that hold one weight: itself, or its three quantised parts."""
    if packing is None:
        return {name: (FLOATS, shape)}
    rows, columns = shape
    groups = (rows, columns // packing.group_size)
    layer = name.removesuffix(".weight")
    return {
        name: ({"U32"}, (rows, columns * packing.bits // 32)),
        f"{layer}.scales": (FLOATS, groups),
        f"{layer}.biases": (FLOATS, groups),
    }


def _problems(
    name: str, shape: Shape, parts: Stored, packing: Packing | None, header: Header
) -> Iterator[str]:
    unfit = packing.problem(shape[1]) if packing else None
    if unfit:
        yield f"{name}: {unfit}"
        return
    yield from unfit_tensors(parts, header)


def unfit_tensors(parts: Stored, header: Header) -> Iterator[str]:
    """Yield what is wrong with stored tensors."""
    for part, (kinds, wanted) in parts.items():
        kind, got = header.get(part, ("", ()))
        if not kind:
            yield f"{part} is missing"
        elif kind not in kinds:
            yield f"{part} has dtype {kind}, not {' or '.join(sorted(kinds))}"
        elif got != wanted:
            yield f"{part} has shape {list(got)}, not {list(wanted)}"


def refuse_unfit(problems: Sequence[str], directory: Path) -> None:
    """Raise `InvalidModelError` with the problems, if there are any."""
    if not problems:
        return
    shown = "; ".join(problems[:_SHOWN])
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    raise InvalidModelError(
        f"The tensors in {directory} do not fit its config.json: {shown}{more}."
    )
