"""config.json of an encoder, checked and with defaults filled in, in one form for all families."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.errors import UnsupportedModelError
from core_openvino.encoder.families import CONFIG_KEYS, FAMILIES, Family
from core_runtime.checkpoint.fields import ConfigFields, JsonFiles
from core_runtime.checkpoint.keys import check_keys
from core_runtime.checkpoint.rope import Rope, parse_rope

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
_CLASSIFIER = "ForSequenceClassification"
_ENCODERS = ("Model", "ForMaskedLM", "ForPreTraining", "LMHeadModel")
_REMEDY = "Run the model with a program that has it, such as sentence-transformers."
MPNET_BUCKETS = 32


@dataclass(frozen=True, slots=True)
class Head:
    """A cross-encoder's head: of ``outputs`` logits the one at ``score`` is a pair's score."""

    outputs: int
    score: int
    name: str
    activation: str
    mean: bool
    bias: bool


@dataclass(frozen=True, slots=True)
class Distances:
    """DeBERTa's table of distances (arXiv 2006.03654): ``span`` rows to each side.

    ``buckets``: far distances share a row, 0 without; ``shared``: keys and queries of distances
    come from the layer's own projections; ``content``, ``position``: the parts of the score.
    """

    span: int
    buckets: int
    longest: int
    normed: bool
    shared: bool
    content: bool
    position: bool


@dataclass(frozen=True, slots=True, eq=False)
class EncoderConfig:
    """Sizes and variants of one encoder.

    ``positions``: the most tokens of a text. ``windows[i]``: how far layer i sees to each side, 0
    for all; ``ropes[i]``: its RoPE. ``biases``: of ModernBERT's norms, attention and MLP.
    """

    model_type: str
    family: Family
    vocab_size: int
    embedding_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    positions: int
    table: int
    segments: int
    norm_eps: float
    activation: str
    windows: tuple[int, ...]
    ropes: tuple[Rope, ...]
    biases: tuple[bool, bool, bool]
    distances: Distances | None
    head: Head | None
    notes: tuple[str, ...] = ()

    @property
    def head_size(self) -> int:
        """The size of an attention head."""
        return self.hidden_size // self.num_heads


def load_encoder_config(directory: Path, files: JsonFiles | None = None) -> EncoderConfig:
    """Read ``directory/config.json``.

    Raises `core.InvalidModelError` for a broken file, `core.UnsupportedModelError` for another
    architecture or variant.
    """
    raw = (files or JsonFiles(directory)).read("config.json")
    return parse_encoder_config(raw, str(directory / "config.json"))


def parse_encoder_config(raw: Mapping[str, Any], where: str) -> EncoderConfig:
    """Build an `EncoderConfig` from parsed JSON; raises like `load_encoder_config`."""
    family = _family(raw, where)
    if family is FAMILIES["roberta"]:  # positions begin after the padding's id
        padding = ConfigFields(raw, where).integer("pad_token_id", family.offset - 1, low=0)
        family = replace(family, offset=padding + 1)
    renamed = {family.aliases.get(name, name): value for name, value in raw.items()}
    fields = ConfigFields({**family.defaults, **renamed}, where)
    notes = check_keys(ConfigFields(raw, where), CONFIG_KEYS, _REMEDY)

    heads, hidden = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    if hidden % heads:
        raise fields.error(f"num_attention_heads {heads} does not divide hidden_size {hidden}")
    layers = fields.integer("num_hidden_layers")
    if layers > 10_000:
        raise fields.error(f"num_hidden_layers {layers} is too large")
    positions = fields.integer("max_position_embeddings", 512, low=family.offset + 1)
    distances = _distances(fields, family, positions)
    windows = _windows(fields, layers) if family.modern else (0,) * layers
    return EncoderConfig(
        model_type=str(raw.get("model_type")),
        family=family,
        vocab_size=fields.integer("vocab_size"),
        embedding_size=fields.integer("embedding_size", hidden),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        positions=positions - family.offset,
        table=positions if _absolute(fields, family) else 0,
        segments=0
        if family.segments is None
        else fields.integer("type_vocab_size", family.segments, low=0),
        norm_eps=fields.number("layer_norm_eps"),
        activation=_activation(fields, "hidden_act"),
        windows=windows,
        ropes=_ropes(fields, windows, hidden // heads) if family.modern else (),
        biases=(
            fields.flag("norm_bias", not family.modern),
            fields.flag("attention_bias", not family.modern),
            fields.flag("mlp_bias", not family.modern),
        ),
        distances=distances,
        head=_head(fields, family),
        notes=notes,
    )


# ------------------------------------------------------------------------------ parts of a config


def _family(raw: Mapping[str, Any], where: str) -> Family:
    name = raw.get("model_type")
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModelError(
            f"{where}: model_type {name!r:.60} is not an encoder that is supported (supported: "
            f"{known}). Another backend may support it: see `infer-cli backends`."
        )
    return family


def _activation(fields: ConfigFields, name: str, default: str = "gelu") -> str:
    value = fields.values.get(name) or default
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise UnsupportedModelError(
            f"{fields.where}: {name}={value!r:.60} is not supported (supported: "
            f"{', '.join(ACTIVATIONS)})."
        )
    return ACTIVATIONS[value]


def _absolute(fields: ConfigFields, family: Family) -> bool:
    """Return True if embeddings have a table of positions."""
    return not family.modern and fields.flag("position_biased_input", True)


def _windows(fields: ConfigFields, layers: int) -> tuple[int, ...]:
    named = fields.values.get("layer_types")
    if named is None:
        every = fields.integer("global_attn_every_n_layers")
        named = [
            "sliding_attention" if index % every else "full_attention" for index in range(layers)
        ]
    kinds = {"full_attention", "sliding_attention"}
    if (
        not isinstance(named, list)
        or len(named) != layers
        or any(name not in kinds for name in map(str, named))
    ):
        raise fields.error(f"layer_types is not a list of {layers} known layer types")
    half = max(1, fields.integer("local_attention") // 2)
    return tuple(half if name == "sliding_attention" else 0 for name in named)


def _ropes(fields: ConfigFields, windows: tuple[int, ...], size: int) -> tuple[Rope, ...]:
    older = {
        "rope_theta": fields.values.get("global_rope_theta") or 160_000.0,
        "rope_local_base_freq": fields.values.get("local_rope_theta") or 10_000.0,
    }
    both = ConfigFields({**older, **fields.values}, fields.where)
    full = parse_rope(both, "full_attention", size)
    local = parse_rope(both, "sliding_attention", size)
    return tuple(local if window else full for window in windows)


def _distances(fields: ConfigFields, family: Family, positions: int) -> Distances | None:
    if family is not FAMILIES["deberta-v2"] or not fields.flag("relative_attention", False):
        if fields.integer("relative_attention_num_buckets", MPNET_BUCKETS) != MPNET_BUCKETS:
            raise fields.error(f"relative_attention_num_buckets is not {MPNET_BUCKETS}")
        return None
    parts = fields.values.get("pos_att_type") or []
    parts = parts.lower().split("|") if isinstance(parts, str) else parts
    buckets = fields.values.get("position_buckets") or -1
    longest = fields.values.get("max_relative_positions") or -1
    if not isinstance(parts, list) or any(part not in ("c2p", "p2c") for part in parts):
        raise fields.error(f"pos_att_type is {parts!r:.60}, not a list of c2p and p2c")
    if not isinstance(buckets, int) or not isinstance(longest, int):
        raise fields.error("position_buckets or max_relative_positions is not an integer")
    longest = longest if longest > 0 else positions
    return Distances(
        span=buckets if buckets > 0 else longest,
        buckets=max(0, buckets),
        longest=longest,
        normed="layer_norm" in str(fields.values.get("norm_rel_ebd") or "none"),
        shared=fields.flag("share_att_key", False),
        content="c2p" in parts,
        position="p2c" in parts,
    )


def _head(fields: ConfigFields, family: Family) -> Head | None:
    names = fields.values.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise fields.error(f"architectures is {names!r:.60}, not a list of names")
    if not names or any(name.endswith(_ENCODERS) for name in names):
        return None
    if not any(name.endswith(_CLASSIFIER) for name in names):
        raise UnsupportedModelError(
            f"{fields.where}: architectures={names!r:.60} is neither an encoder nor a classifier "
            "of pairs of texts. Give a checkpoint whose architecture ends in Model or "
            f"{_CLASSIFIER}."
        )
    if family.head.activation in ACTIVATIONS.values():
        activation = family.head.activation
    else:
        activation = _activation(fields, family.head.activation)
    outputs, score, name = _scored(fields)
    return Head(
        outputs=outputs,
        score=score,
        name=name,
        activation=activation,
        mean=fields.values.get("classifier_pooling") == "mean",
        bias=fields.flag("classifier_bias", False) if family.modern else True,
    )


def _scored(fields: ConfigFields) -> tuple[int, int, str]:
    """Return the number of outputs, and the place and name of the one that is a score."""
    labels = fields.section("id2label")
    names = dict(labels.values) if labels else {}
    if not names:
        count = fields.integer("num_labels", 2)
        names = {str(index): f"LABEL_{index}" for index in range(count)}
    if len(names) == 1:
        return 1, 0, "its only output"
    entailing = [place for place, name in names.items() if str(name).lower().startswith("entail")]
    if len(entailing) != 1 or not entailing[0].isdigit() or int(entailing[0]) >= len(names):
        raise UnsupportedModelError(
            f"{fields.where}: this classifier has labels of its own, and not exactly one is named "
            f"entailment: {', '.join(map(str, names.values()))!s:.200}. Give an encoder, a "
            "reranker with one output, or a model of natural language inference."
        )
    return len(names), int(entailing[0]), str(names[entailing[0]])
