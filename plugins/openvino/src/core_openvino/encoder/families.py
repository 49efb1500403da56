"""The differences between encoder architectures, as data. BERT's tensor names serve all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core_runtime.checkpoint.keys import KeyRule, harmless, honoured, refused, reported, same


@dataclass(frozen=True, slots=True)
class HeadNames:
    """The parts of a classification head: a layer, its activation, a norm, the last layer."""

    dense: str
    activation: str
    last: str = "classifier"
    norm: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """The variant of an encoder. ``defaults`` are those of transformers' config class.

    ``prefix``: of the tensors in a checkpoint with a head. ``spelling``: parts of tensor names, and
    BERT's. ``aliases``: keys of config.json, and BERT's. ``offset``: rows of the position table
    before the first token's. ``segments``: the default of type_vocab_size; None without segments.
    ``modern``: norms before each part, RoPE, and a gated MLP.
    """

    prefix: str
    head: HeadNames
    spelling: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    offset: int = 0
    segments: int | None = None
    modern: bool = False


_BERT = Family(
    "bert.",
    HeadNames("pooler.dense", "tanh"),
    defaults={"layer_norm_eps": 1e-12},
    segments=2,
)
_ROBERTA = replace(
    _BERT, prefix="roberta.", head=HeadNames("classifier.dense", "tanh", "classifier.out_proj"),
    offset=2,
)  # fmt: skip
_MPNET = replace(
    _ROBERTA,
    prefix="mpnet.",
    spelling={
        "attention.attn.q.": "attention.self.query.",
        "attention.attn.k.": "attention.self.key.",
        "attention.attn.v.": "attention.self.value.",
        "attention.attn.o.": "attention.output.dense.",
        "attention.LayerNorm.": "attention.output.LayerNorm.",
    },
    defaults={"layer_norm_eps": 1e-12, "relative_attention_num_buckets": 32},
    segments=None,
)
_DISTILBERT = Family(
    "distilbert.",
    HeadNames("pre_classifier", "relu"),
    spelling={
        "transformer.layer.": "encoder.layer.",
        "attention.q_lin.": "attention.self.query.",
        "attention.k_lin.": "attention.self.key.",
        "attention.v_lin.": "attention.self.value.",
        "attention.out_lin.": "attention.output.dense.",
        "sa_layer_norm.": "attention.output.LayerNorm.",
        "ffn.lin1.": "intermediate.dense.",
        "ffn.lin2.": "output.dense.",
        "output_layer_norm.": "output.LayerNorm.",
    },
    aliases={
        "dim": "hidden_size",
        "hidden_dim": "intermediate_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "activation": "hidden_act",
    },
    defaults={"layer_norm_eps": 1e-12},
)
_MODERNBERT = Family(
    "model.",
    HeadNames("head.dense", "classifier_activation", norm="head.norm"),
    spelling={
        "embeddings.tok_embeddings.": "embeddings.word_embeddings.",
        "embeddings.norm.": "embeddings.LayerNorm.",
        "layers.": "encoder.layer.",
        "attn.Wqkv.": "attention.self.qkv.",
        "attn.Wo.": "attention.output.dense.",
        "mlp.Wi.": "intermediate.dense.",
        "mlp.Wo.": "output.dense.",
    },
    aliases={"hidden_activation": "hidden_act", "norm_eps": "layer_norm_eps"},
    defaults={"layer_norm_eps": 1e-5, "global_attn_every_n_layers": 3, "local_attention": 128},
    modern=True,
)
_DEBERTA = Family(
    "deberta.",
    HeadNames("pooler.dense", "pooler_hidden_act"),
    spelling={f"{part}_proj.": f"{part}." for part in ("query", "key", "value")},
    defaults={"layer_norm_eps": 1e-7},
    segments=0,
)

FAMILIES: Mapping[str, Family] = {
    "bert": _BERT,
    "deberta-v2": _DEBERTA,
    "distilbert": _DISTILBERT,
    "modernbert": _MODERNBERT,
    "mpnet": _MPNET,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}
"""The families by ``model_type``."""

UNREAD = (
    "pooler.",
    "cls.",
    "lm_head.",
    "lm_predictions.",
    "mask_predictions.",
    "vocab_transform.",
    "vocab_layer_norm.",
    "vocab_projector.",
    "head.",
    "decoder.",
)
"""The beginnings of tensors of other heads, which embeddings do not need."""

CONFIG_KEYS: Mapping[str, KeyRule] = {
    "model_type": honoured("the family"),
    "architectures": honoured(
        "an encoder, with the head of a masked language model or a classifier"
    ),
    **same(
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "max_position_embeddings type_vocab_size dim hidden_dim n_layers n_heads embedding_size",
        honoured("the tensors must have these sizes"),
    ),
    **same("layer_norm_eps norm_eps", honoured("added to the variance in each norm")),
    **same("hidden_act hidden_activation activation", honoured("gelu, gelu_new, relu and silu")),
    **same("id2label label2id num_labels", honoured("the label named entailment, or a lone one")),
    **same(
        "rope_parameters rope_scaling rope_theta global_rope_theta local_rope_theta "
        "local_attention global_attn_every_n_layers layer_types",
        honoured("ModernBERT's positions and windows"),
    ),
    **same(
        "norm_bias mlp_bias attention_bias classifier_bias classifier_pooling "
        "classifier_activation pooler_hidden_act pooler_hidden_size",
        honoured("ModernBERT's and DeBERTa's variants"),
    ),
    **same(
        "relative_attention max_relative_positions position_buckets norm_rel_ebd share_att_key "
        "pos_att_type position_biased_input relative_attention_num_buckets",
        honoured("DeBERTa's and MPNet's distances"),
    ),
    "pad_token_id": honoured("RoBERTa's positions begin after it"),
    "position_embedding_type": refused("positions are absolute in this family", "absolute"),
    **same(
        "is_decoder add_cross_attention is_encoder_decoder", refused("it is not an encoder alone")
    ),
    "pruned_heads": refused("layers differ from one another"),
    "conv_kernel_size": refused("a convolution after the first layer", 0),
    "sinusoidal_pos_embds": harmless("the table of positions is stored"),
    "quantization_config": refused("packed weights"),
    **same("num_experts moe_every_n_layers", refused("a mixture of experts", 0, 1)),
    "auto_map": reported("model code is never run; the family's implementation is used"),
    **same(
        "attention_probs_dropout_prob hidden_dropout_prob attention_dropout dropout qa_dropout "
        "seq_classif_dropout embedding_dropout mlp_dropout classifier_dropout pooler_dropout "
        "initializer_range initializer_cutoff_factor gradient_checkpointing",
        harmless("used only in training"),
    ),
    **same(
        "decoder_bias sparse_prediction sparse_pred_ignore_index tie_word_embeddings legacy "
        "bos_token_id eos_token_id sep_token_id cls_token_id "
        "unk_token_id problem_type finetuning_task sentence_transformers pooler_fc_size "
        "pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type "
        "directionality conv_act",
        harmless("for other heads, or the tokenizer's files decide"),
    ),
    **same(
        "dtype torch_dtype use_cache output_past reference_compile deterministic_flash_attn "
        "repad_logits_with_grad return_dict output_hidden_states output_attentions torchscript "
        "chunk_size_feed_forward attn_implementation _attn_implementation_autoset "
        "cross_attention_hidden_size tie_encoder_decoder",
        harmless("how transformers runs, and what it returns"),
    ),
    **same(
        "transformers_version _name_or_path name_or_path "
        "model_max_length max_length tokenizer_class _commit_hash",
        harmless("how it was made or saved"),
    ),
}
"""The treatment of each key of config.json; one that is not here is reported."""
