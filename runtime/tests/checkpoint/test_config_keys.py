"""Every key of config.json is read, refused by name, or harmless."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import core
from core_runtime.checkpoint.config import ModelConfig, parse_config
from core_runtime.checkpoint.config_keys import CONFIG_KEYS, ROPE_KEYS
from core_runtime.checkpoint.families import FAMILIES as KNOWN
from core_runtime.checkpoint.generation_keys import GENERATION_KEYS
from core_runtime.checkpoint.keys import KeyRule
from runtime.tests.tiny import FAMILIES

OF_TRANSFORMERS: dict[str, list[str]] = json.loads(
    (Path(__file__).parent / "config_keys.json").read_text()
)
NOT_ITS_OWN = {"eos_token_id", "model_type", "text_config"}  # read elsewhere, or a test's own
LINEAR = {"rope_type": "linear", "factor": 2.0}

# A value of each key that is read which makes another model, or an error.
OTHER: dict[str, Any] = {
    "architectures": ["LlamaForSequenceClassification"],
    "hidden_size": 64,
    "vocab_size": 7,
    "intermediate_size": 7,
    "num_hidden_layers": 7,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "max_position_embeddings": 7,
    "rms_norm_eps": 0.5,
    "attention_bias": True,
    "mlp_bias": True,
    "tie_word_embeddings": 5,
    "hidden_act": "relu",
    "hidden_activation": "relu",
    "rope_theta": 5.0,
    "rope_scaling": LINEAR,
    "rope_parameters": {**LINEAR, "full_attention": LINEAR},
    "rope_local_base_freq": 5.0,
    "partial_rotary_factor": 0.5,
    "original_max_position_embeddings": 4,
    "sliding_window": 5,
    "use_sliding_window": 5,
    "max_window_layers": 0,
    "layer_types": ["sliding_attention"],
    "sliding_window_pattern": 3,
    "_sliding_window_pattern": 3,
    "query_pre_attn_scalar": 5,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 5.0,
    "quantization": {"bits": 4, "group_size": 32},
    "quantization_config": {"quant_method": "gptq", "bits": 4},
}
# What it takes for such a value to count.
BESIDE: dict[str, dict[str, Any]] = {
    "original_max_position_embeddings": {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        }
    },
    "sliding_window_pattern": {"layer_types": None},
    "_sliding_window_pattern": {"layer_types": None},
}


def keys_of(family: str) -> Mapping[str, KeyRule]:
    return {**CONFIG_KEYS, **KNOWN[FAMILIES[family]["model_type"]].keys}


def parsed(family: str, **changes: Any) -> ModelConfig:
    both = {**FAMILIES[family], **changes}
    return parse_config({key: value for key, value in both.items() if value is not None}, "c")


def entries(*verdicts: str) -> list[Any]:
    return [
        pytest.param(family, name, id=f"{family}-{name}")
        for family in FAMILIES
        for name, key in keys_of(family).items()
        if key.verdict in verdicts and name not in NOT_ITS_OWN
    ]


@pytest.mark.parametrize(("family", "name"), entries("honoured"))
def test_a_key_that_is_read_makes_another_model(family: str, name: str) -> None:
    beside = BESIDE.get(name, {})
    plain = parsed(family, **beside)
    changed: ModelConfig | str
    try:
        changed = parsed(family, **{**beside, name: OTHER[name]})
    except core.ModelError as error:
        changed = str(error)
    if isinstance(changed, str):
        assert name in changed or NAMED_AS[name] in changed
    assert (changed != plain) == ((family, name) not in NOTHING_TO_CHANGE)


NAMED_AS = {
    "hidden_act": "relu",
    "hidden_activation": "relu",
    "num_hidden_layers": "layer",
    "num_attention_heads": "heads",
    "quantization_config": "gptq",
}


# Read, and without meaning in these: no sliding layer, no local rope, biases of its own.
NOTHING_TO_CHANGE = {
    *((family, "rope_local_base_freq") for family in FAMILIES if family != "gemma3"),
    ("qwen2", "attention_bias"),
}


@pytest.mark.parametrize(("family", "name"), entries("harmless"))
def test_a_harmless_key_makes_the_same_model(family: str, name: str) -> None:
    assert parsed(family, **{name: "anything"}) == parsed(family)


@pytest.mark.parametrize(("family", "name"), entries("refused"))
def test_a_refused_key_is_named(family: str, name: str) -> None:
    key = keys_of(family)[name]
    for value in (7, [3], "x"):
        with pytest.raises(core.UnsupportedModelError, match=f"{name}=.* is not supported"):
            parsed(family, **{name: value})
    for neutral in key.neutral:
        if neutral is None or name != "query_pre_attn_scalar":  # which has to be a number
            assert parsed(family, **{name: neutral}) == parsed(family)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_attends_to_both_sides_is_refused(family: str) -> None:
    assert parsed(family, is_causal=True) == parsed(family)
    for changes in ({"is_causal": False}, {"use_bidirectional_attention": True}):
        with pytest.raises(core.UnsupportedModelError, match=next(iter(changes))):
            parsed(family, **changes)


@pytest.mark.parametrize("family", FAMILIES)
def test_unknown_keys_are_noted_unless_they_are_empty(family: str) -> None:
    empty = {"a": False, "b": [], "c": {}, "d": ""}
    assert parsed(family, **empty).notes == ()
    assert parsed(family, new_trick=1, auto_map={"AutoModel": "m.M"}).notes == (
        "new_trick=1",
        "auto_map={'AutoModel': 'm.M'}",
    )
    assert parsed(family, rope_scaling={**LINEAR, "twist": 3}).notes == ("twist=3",)


@pytest.mark.parametrize("family", sorted(OF_TRANSFORMERS.keys() - {"generation_config"}))
def test_every_key_of_transformers_is_in_the_table(family: str) -> None:
    known = {**CONFIG_KEYS, **KNOWN[family].keys}
    assert [name for name in OF_TRANSFORMERS[family] if name not in known] == []


# ------------------------------------------------------------------------------ architectures


@pytest.mark.parametrize(
    "names",
    [
        *(["LlamaForCausalLM"], ["MistralForCausalLM"], ["Qwen2ForCausalLM"], ["LLaMAForCausalLM"]),
        *(["Gemma3ForConditionalGeneration"], ["Gemma3ForCausalLM"], [], None),
    ],
)
def test_language_models_by_their_architecture(names: object) -> None:
    assert parsed("llama", architectures=names) == parsed("llama")


def test_architectures_are_a_list() -> None:
    with pytest.raises(core.InvalidModelError, match="architectures is 'LlamaForCausalLM'"):
        parsed("llama", architectures="LlamaForCausalLM")


# ---------------------------------------------------------------------------------- rope


def test_a_rope_that_two_keys_tell_otherwise_is_refused() -> None:
    modern = {"rope_type": "default", "rope_theta": 500_000.0}
    plain = parsed("llama", rope_parameters=modern)
    for same in (None, {}, {"type": "default"}, {"rope_type": "default", "rope_theta": 500_000.0}):
        assert parsed("llama", rope_parameters=modern, rope_scaling=same) == plain
    for other in (LINEAR, {"type": "yarn", "factor": 4}, {"rope_theta": 10_000.0}, {"factor": 2.0}):
        with pytest.raises(
            core.ModelError, match=r"rope_scaling has .*which rope_parameters lacks"
        ):
            parsed("llama", rope_parameters=modern, rope_scaling=other)

    nested = {"full_attention": {**modern, **LINEAR}, "sliding_attention": modern}
    assert parsed("gemma3", rope_parameters=nested, rope_scaling=LINEAR).layers
    with pytest.raises(core.InvalidModelError, match="which rope_parameters lacks"):
        parsed("gemma3", rope_parameters=nested, rope_scaling={**LINEAR, "factor": 8.0})


@pytest.mark.parametrize("name", [name for name, key in ROPE_KEYS.items() if key.why == "llama3"])
def test_the_numbers_of_a_llama3_rope_count(name: str) -> None:
    rope = BESIDE["original_max_position_embeddings"]["rope_scaling"]
    assert parsed("llama", rope_scaling={**rope, name: 2.0}) != parsed("llama", rope_scaling=rope)


def test_layers_that_slide_are_refused_in_a_llama() -> None:
    full, sliding = "full_attention", "sliding_attention"
    assert parsed("llama", layer_types=[full, full], sliding_window=8) == parsed("llama")
    with pytest.raises(core.UnsupportedModelError, match="layer_types has sliding layers"):
        parsed("llama", layer_types=[full, sliding], sliding_window=8)


def test_layer_types_of_a_mistral_are_read() -> None:
    """transformers takes it for a Ministral; the logits are held in ``oracle``."""
    types = ["full_attention", "sliding_attention"]
    assert [kind.window for kind in parsed("mistral", layer_types=types).layers] == [0, 8]
    assert [kind.window for kind in parsed("mistral").layers] == [8, 8]


def test_a_quantisation_of_the_text_model_is_seen() -> None:
    with pytest.raises(core.UnsupportedModelError, match="quant_method='awq'"):
        parsed("gemma3", text_config={"quantization_config": {"quant_method": "awq", "bits": 4}})
    for method in ("gptq", "bitsandbytes", "fp8", "compressed-tensors", "mxfp4", "modelopt"):
        with pytest.raises(core.UnsupportedModelError, match=f"quant_method='{method}'"):
            parsed("llama", quantization_config={"quant_method": method})


# ----------------------------------------------------------------- generation_config.json


def test_every_key_of_generation_config_is_in_the_table() -> None:
    unknown = set(OF_TRANSFORMERS["generation_config"]) - set(GENERATION_KEYS)
    assert unknown == set()


# ------------------------------------------------------------------------ published files

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_type": "llama3"}
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
COMMON = {
    **{"attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu"},
    **{"initializer_range": 0.02, "max_position_embeddings": 64, "rms_norm_eps": 1e-5},
    **{"torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": True},
    **SIZES,
    **HEADS,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "SmolLM2": {
        **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "pad_token_id": 2},
        **{"is_llama_config": True, "rope_interleaved": False, "rope_scaling": None},
        **{"transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}}, "rope_theta": 1e5},
        **{"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1},
    },
    "Llama 3.1": {
        **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "pretraining_tp": 1},
        **{"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 8192}},
        **{"eos_token_id": [7, 8, 9], "attention_bias": False, "mlp_bias": False},
        **{"_name_or_path": "meta-llama/x", "unsloth_fixed": True, "head_dim": 8},
    },
    "Llama 2": {
        **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_length": 4096},
        **{"_name_or_path": "/checkpoint", "pad_token_id": 0, "max_sequence_length": 2048},
    },
    "Mistral": {
        **{"architectures": ["MistralForCausalLM"], "model_type": "mistral"},
        **{"sliding_window": None, "rope_theta": 1e6, "head_dim": 8},
    },
    "Qwen 2.5": {
        **{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_mrope": False},
        **{"max_window_layers": 1, "sliding_window": 32, "use_sliding_window": False},
    },
    "Qwen 3": {
        **{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 8},
        **{"attention_bias": False, "max_window_layers": 2, "sliding_window": None},
        **{"use_sliding_window": False, "rope_scaling": None, "rope_theta": 1e6},
        **{"quantization": {"group_size": 32, "bits": 4}},
        **{"quantization_config": {"group_size": 32, "bits": 4}},
    },
    "Gemma 2": {
        **{"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "head_dim": 8},
        **{"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"},
        **{"cache_implementation": "hybrid", "sliding_window": 8, "query_pre_attn_scalar": 8},
        **{"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    },
    "Gemma 3": {
        **{"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"},
        **{"boi_token_index": 9, "eoi_token_index": 10, "image_token_index": 11},
        **{"mm_tokens_per_image": 4, "vision_config": {"hidden_size": 4}},
        "text_config": {
            **{"model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh"},
            **{"rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "head_dim": 8},
            **{"_sliding_window_pattern": 6, "sliding_window": 8, "cache_implementation": "hybrid"},
            **{"attn_logit_softcapping": None, "use_bidirectional_attention": False},
            **{"rope_local_base_freq": 1e4, "query_pre_attn_scalar": 8},
            **SIZES,
        },
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_keys_of_published_models_are_all_known(name: str) -> None:
    assert parse_config({**COMMON, **PUBLISHED[name]}, "c").notes == ()
