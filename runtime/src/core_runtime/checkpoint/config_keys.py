"""The keys of config.json, and the treatment of each.

Read from transformers 5.24 (configuration_utils.py, and configuration_*.py and modeling_*.py of the
families here), and from the files that publishers, mlx-lm and fine-tuning tools write. An unlisted
key is reported once per model; transformers stores such keys without using them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from core.errors import UnsupportedModelError
from core_runtime.checkpoint.fields import ConfigFields
from core_runtime.checkpoint.generation_keys import GENERATION_KEYS
from core_runtime.checkpoint.keys import (
    KeyRule,
    check_keys,
    harmless,
    honoured,
    refused,
    reported,
    same,
)

_MULTIPLIER = refused("this family has no such factor", 1, 1.0)
_OTHER_PLACES = "positions are encoded differently than in this family"

CONFIG_KEYS: Mapping[str, KeyRule] = {
    # Keys that are read.
    "model_type": honoured("the family; if missing, Qwen 2 or 3 depending on the tensors"),
    "architectures": honoured("only language models: names that end in ForCausalLM, and Gemma 3's"),
    "text_config": honoured("its keys take precedence over those outside it"),
    **same(
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads head_dim",
        honoured("the tensors must have these sizes"),
    ),
    "max_position_embeddings": honoured("the context"),
    "rms_norm_eps": honoured("added to the mean square in each norm"),
    **same("attention_bias mlp_bias", honoured("the bias tensors must exist")),
    "tie_word_embeddings": honoured("unless the tensors contain a different LM head"),
    "hidden_act": honoured("silu, or swish, which is the same"),
    **same(
        "rope_theta rope_scaling rope_parameters rope_local_base_freq partial_rotary_factor",
        honoured("default, linear and llama3; other types, and partial rotation, are refused"),
    ),
    **same(
        "sliding_window use_sliding_window max_window_layers layer_types",
        honoured("the layers with a sliding window, as transformers reads it for the family"),
    ),
    "original_max_position_embeddings": honoured("overrides the value in a llama3 RoPE"),
    **same("quantization quantization_config", honoured("only MLX's affine quantisation")),
    "eos_token_id": honoured("generation ends at these tokens"),
    # Keys that would change results.
    **same(
        "attn_logit_softcapping final_logit_softcapping",
        refused("this family has no cap of scores or logits"),
    ),
    "query_pre_attn_scalar": refused("this family divides scores by the root of head_dim"),
    **same(
        "use_bidirectional_attention is_encoder_decoder add_cross_attention",
        refused("it is not a left-to-right decoder"),
    ),
    "is_causal": KeyRule("refused", "it is not a left-to-right decoder", (True, None)),
    **same("pruned_heads per_layer_config", refused("layers differ from one another")),
    **same(
        "num_local_experts num_experts n_routed_experts",
        refused("a mixture of experts", 0, 1),
    ),
    **same("rope_interleaved use_mrope rope_interleave", refused(_OTHER_PLACES)),
    **same("use_dynamic_ntk use_logn_attn no_rope_layers", refused(_OTHER_PLACES)),
    **same(
        "attention_multiplier embedding_multiplier residual_multiplier logits_scaling logit_scale "
        "scale_emb scale_depth",
        _MULTIPLIER,
    ),
    "attention_chunk_size": refused("attention in chunks"),
    "transformers_weights": refused("it names another file for the weights"),
    "model_file": refused("it names model code, which is never run"),
    "compression_config": refused("a quantisation format other than MLX's"),
    # Keys that a user may expect to have an effect.
    "auto_map": reported("model code is never run; the family's implementation is used"),
    # Keys that change no result.
    "hidden_activation": harmless("transformers reads hidden_act for this family"),
    **same("dtype torch_dtype", harmless("the dtype to compute in is an option")),
    "pretraining_tp": harmless("it splits a product, with the same result"),
    "chunk_size_feed_forward": harmless("it splits a product, with the same result"),
    "num_nextn_predict_layers": harmless("layers that draft tokens; their tensors are refused"),
    **same(
        "attention_dropout hidden_dropout embd_pdrop resid_pdrop initializer_range "
        "initializer_factor gradient_checkpointing neftune_noise_alpha",
        harmless("used only in training"),
    ),
    **same(
        "bos_token_id pad_token_id unk_token_id sep_token_id cls_token_id decoder_start_token_id "
        "tokenizer_class prefix",
        harmless("the tokenizer's own files decide"),
    ),
    **same(
        "attn_implementation _attn_implementation _attn_implementation_autoset "
        "_flash_attn_2_enabled use_flash_attn use_cache cache_implementation torchscript "
        "output_hidden_states output_attentions return_dict return_dict_in_generate "
        "output_scores use_bfloat16 tf_legacy_loss",
        harmless("how transformers runs, and what it returns"),
    ),
    **same(
        "id2label label2id num_labels problem_type finetuning_task task_specific_params "
        "is_decoder cross_attention_hidden_size tie_encoder_decoder",
        harmless("settings of heads and encoders that a language model lacks"),
    ),
    **same(
        "transformers_version _name_or_path name_or_path _commit_hash transformers.js_config "
        "is_llama_config unsloth_fixed unsloth_version max_sequence_length model_name "
        "tie_last_hidden_states",
        harmless("how it was made or saved"),
    ),
}
"""The treatment of each key, unless `FAMILY_KEYS` has another."""

_GENERATION = harmless("an option of generate; transformers 5 ignores it in config.json")
_OLDER: Mapping[str, KeyRule] = {
    name: _GENERATION for name in GENERATION_KEYS if name not in CONFIG_KEYS
}

_GEMMA: Mapping[str, KeyRule] = {
    "hidden_activation": honoured("gelu_pytorch_tanh"),
    "hidden_act": harmless("transformers reads hidden_activation for this family"),
    "query_pre_attn_scalar": honoured("scores are divided by its root"),
    **same("sliding_window_pattern _sliding_window_pattern", honoured("without layer_types")),
    **same(
        "use_sliding_window max_window_layers", harmless("transformers' Gemma does not read it")
    ),
}
FAMILY_KEYS: Mapping[str, Mapping[str, KeyRule]] = {
    "llama": same(
        "sliding_window use_sliding_window max_window_layers",
        harmless("transformers' Llama has no sliding window"),
    ),
    "mistral": same(
        "use_sliding_window max_window_layers",
        harmless("transformers' Mistral does not read it"),
    ),
    "gemma2": {
        **_GEMMA,
        **same("attn_logit_softcapping final_logit_softcapping", honoured("cap * tanh(x / cap)")),
    },
    "gemma3": {
        **_GEMMA,
        **same(
            "vision_config mm_tokens_per_image boi_token_index eoi_token_index image_token_index "
            "image_token_id boi_token_id eoi_token_id",
            harmless("settings for images, which are not supported"),
        ),
    },
}
"""The keys with a different treatment in one family."""

ROPE_KEYS: Mapping[str, KeyRule] = {
    **same("rope_type type", honoured("default, linear or llama3")),
    "rope_theta": honoured("the base"),
    "factor": honoured("linear, llama3"),
    **same("low_freq_factor high_freq_factor original_max_position_embeddings", honoured("llama3")),
    "partial_rotary_factor": honoured("1; partial rotation is refused"),
    "attention_factor": harmless("default, linear and llama3 do not use it"),
    **same(
        "beta_fast beta_slow mscale mscale_all_dim short_factor long_factor truncate finetuned",
        harmless("for refused RoPE types"),
    ),
    **same("full_attention sliding_attention", honoured("a separate RoPE for each")),
}
"""The treatment of each key of ``rope_scaling`` and ``rope_parameters``."""

_REMEDY = "Run the model with a program that has it, such as transformers."
_MULTIMODAL = "Gemma3ForConditionalGeneration"


def check_config(fields: ConfigFields, own: Mapping[str, KeyRule]) -> tuple[str, ...]:
    """Return the keys to report of a config.json whose family has these ``own`` entries.

    Raises `UnsupportedModelError` for a key that is refused.
    """
    _check_architectures(fields)
    notes = check_keys(fields, {**_OLDER, **CONFIG_KEYS, **own}, _REMEDY)
    for section in _ropes(fields):
        notes += check_keys(section, ROPE_KEYS, _REMEDY)
    return notes


def _ropes(fields: ConfigFields) -> Iterator[ConfigFields]:
    for name in ("rope_scaling", "rope_parameters"):
        if (section := fields.section(name)) is not None:
            yield section
            for kind in ("full_attention", "sliding_attention"):
                if (inside := section.section(kind)) is not None:
                    yield inside


def _check_architectures(fields: ConfigFields) -> None:
    names = fields.values.get("architectures") or []
    if not isinstance(names, list):
        raise fields.error(f"architectures is {names!r:.60}, not a list")
    if names and not any(_is_language_model(name) for name in names):
        raise UnsupportedModelError(
            f"{fields.where}: architectures={names!r:.60} is not a language model: it has "
            "another head, or none. Give a checkpoint whose architecture ends in ForCausalLM."
        )


def _is_language_model(name: object) -> bool:
    return isinstance(name, str) and (name.endswith("ForCausalLM") or name == _MULTIMODAL)
