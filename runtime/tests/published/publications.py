"""Files that each publisher ships beside the vocabulary: configs, flags, templates, others.

Keys and values are as published, but for sizes, and for ids of tokens, which follow the small
vocabularies. README.md names the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from . import vocabularies
from .shapes import Added, Json, Vocabulary

Place = Literal["chat_template.jinja", "chat_template.json", "tokenizer_config.json"]

LONG = 1000000000000000019884624838656
_FULL, _SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class Publication:
    """One directory as published.

    ``shape``: the key of `shapes.SHAPES`. ``padding``: rows of the embedding beyond the vocabulary
    and its added tokens; below zero, so many tokens have no row. ``template``: its name in
    ``templates`` here or in ``chat_templates/templates``, and the file that holds it. ``others``:
    files that no loader of text models reads. ``prefix``: before the names of tensors.
    ``shards``: how many files hold the weights, with an index where there are several.
    ``rebuilt``: transformers 5 rebuilds this tokenizer from its class, which is not
    what tokenizer.json says.
    """

    name: str
    family: str
    shape: str
    vocabulary: Callable[[], Vocabulary]
    config: Json
    tokenizer_config: Json
    generation_config: Json
    template: str
    place: Place
    padding: int = 0
    special_tokens_map: Json = field(default_factory=dict)
    others: Mapping[str, bytes] = field(default_factory=dict)
    prefix: str = ""
    shards: int = 1
    dtype: Literal["bfloat16", "float16"] = "bfloat16"
    rebuilt: bool = False
    seed: int = 0

    @property
    def text_config(self) -> Json:
        """Return the config of the text model."""
        text: Json = self.config.get("text_config", self.config)
        return text


def _token(content: str, *, normalized: bool = False, typed: bool = False) -> Json:
    """Return a token with its flags, as older files have it."""
    decoded = Added(0, content, normalized=normalized).decoded()
    del decoded["special"]
    return {"__type": "AddedToken", **decoded} if typed else decoded


def _map(tokens: Json) -> Json:
    """Return the special_tokens_map.json of these tokens, with their flags."""
    return {name: _token(text) if isinstance(text, str) else text for name, text in tokens.items()}


# ---------------------------------------------------------------- Gemma

_GEMMA_TOKENS = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}
_IMAGES = {
    "boi_token": "<start_of_image>",
    "eoi_token": "<end_of_image>",
    "image_token": "<image_soft_token>",
}
_GEMMA_3_TOKENIZER = {
    "add_bos_token": True,
    "add_eos_token": False,
    **_GEMMA_TOKENS,
    **_IMAGES,
    "clean_up_tokenization_spaces": False,
    "extra_special_tokens": _IMAGES,
    "model_max_length": LONG,
    "processor_class": "Gemma3Processor",
    "sp_model_kwargs": None,
    "spaces_between_special_tokens": False,
    "tokenizer_class": "GemmaTokenizer",
    "use_default_system_prompt": False,
}
_GEMMA_3_CONFIG = {
    "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attn_logit_softcapping": None,
    "bos_token_id": 2,
    "eos_token_id": [1, 106],
    "final_logit_softcapping": None,
    "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 48,
    "max_position_embeddings": 32768,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_hidden_layers": 6,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 16,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": 8,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}
_GEMMA_3_GENERATION = {
    "bos_token_id": 2,
    "cache_implementation": "hybrid",
    "do_sample": True,
    "eos_token_id": [1, 106],
    "pad_token_id": 0,
    "top_k": 64,
    "top_p": 0.95,
    "transformers_version": "4.50.0.dev0",
}
_SPM = {"tokenizer.model": b"\n\x0e\n\x05<pad>"}  # a SentencePiece model begins like this

GEMMAS = (
    Publication(
        name="gemma-3-270m-it",
        family="gemma3_text",
        shape="gemma3",
        vocabulary=vocabularies.gemma_3,
        padding=-1,
        config={
            **_GEMMA_3_CONFIG,
            "_sliding_window_pattern": 6,
            "eos_token_id": 1,
            "layer_types": [_SLIDING] * 5 + [_FULL],
            "rope_local_base_freq": 10000.0,
            "rope_theta": 1000000.0,
            "transformers_version": "4.55.0.dev0",
            "use_bidirectional_attention": False,
        },
        tokenizer_config=_GEMMA_3_TOKENIZER,
        special_tokens_map={**_IMAGES, **_map(_GEMMA_TOKENS)},
        generation_config={
            **_GEMMA_3_GENERATION,
            "transformers_version": "4.55.0.dev0",
        },
        template="gemma-3",
        place="chat_template.jinja",
        others={**_SPM, "README.md": b"# Gemma 3"},
        seed=1,
    ),
    Publication(
        name="gemma-3-1b-it",
        family="gemma3_text",
        shape="gemma3",
        vocabulary=vocabularies.gemma_3,
        padding=-1,
        config={
            **_GEMMA_3_CONFIG,
            "cache_implementation": "hybrid",
            "sliding_window_pattern": 6,
            "transformers_version": "4.50.0.dev0",
        },
        tokenizer_config=_GEMMA_3_TOKENIZER,
        special_tokens_map={**_IMAGES, **_map(_GEMMA_TOKENS)},
        generation_config=_GEMMA_3_GENERATION,
        template="gemma-3",
        place="tokenizer_config.json",
        others=_SPM,
        seed=2,
    ),
    Publication(
        name="gemma-3-4b-it",
        family="gemma3",
        shape="gemma3",
        vocabulary=vocabularies.gemma_3,
        padding=63,
        config={
            "architectures": ["Gemma3ForConditionalGeneration"],
            "boi_token_index": "<start_of_image>",
            "eoi_token_index": "<end_of_image>",
            "eos_token_id": [1, 106],
            "image_token_index": "<image_soft_token>",
            "initializer_range": 0.02,
            "mm_tokens_per_image": 4,
            "model_type": "gemma3",
            "text_config": {
                "hidden_size": 32,
                "intermediate_size": 48,
                "model_type": "gemma3_text",
                "num_hidden_layers": 6,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
                "sliding_window": 8,
            },
            "torch_dtype": "bfloat16",
            "transformers_version": "4.50.0.dev0",
            "vision_config": {
                "hidden_size": 16,
                "image_size": 56,
                "intermediate_size": 16,
                "model_type": "siglip_vision_model",
                "num_attention_heads": 2,
                "num_hidden_layers": 1,
                "patch_size": 14,
                "vision_use_head": False,
            },
        },
        tokenizer_config=_GEMMA_3_TOKENIZER,
        special_tokens_map={**_IMAGES, **_map(_GEMMA_TOKENS)},
        generation_config=_GEMMA_3_GENERATION,
        template="gemma-3",
        place="chat_template.json",
        prefix="language_model.",
        shards=2,
        others={
            **_SPM,
            "preprocessor_config.json": b'{"image_processor_type": "Gemma3ImageProcessor"}',
            "processor_config.json": b'{"image_seq_length": 256}',
        },
        seed=3,
    ),
    Publication(
        name="gemma-2-2b-it",
        family="gemma2",
        shape="gemma2",
        vocabulary=vocabularies.gemma_2,
        config={
            "architectures": ["Gemma2ForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "attn_logit_softcapping": 50.0,
            "bos_token_id": 2,
            "cache_implementation": "hybrid",
            "eos_token_id": [1, 107],
            "final_logit_softcapping": 30.0,
            "head_dim": 16,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size": 32,
            "initializer_range": 0.02,
            "intermediate_size": 48,
            "max_position_embeddings": 8192,
            "model_type": "gemma2",
            "num_attention_heads": 8,
            "num_hidden_layers": 2,
            "num_key_value_heads": 4,
            "pad_token_id": 0,
            "query_pre_attn_scalar": 16,
            "rms_norm_eps": 1e-06,
            "rope_theta": 10000.0,
            "sliding_window": 8,
            "torch_dtype": "bfloat16",
            "transformers_version": "4.42.4",
            "use_cache": True,
        },
        tokenizer_config={
            "add_bos_token": True,
            "add_eos_token": False,
            "additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"],
            **_GEMMA_TOKENS,
            "clean_up_tokenization_spaces": False,
            "model_max_length": LONG,
            "sp_model_kwargs": {},
            "spaces_between_special_tokens": False,
            "tokenizer_class": "GemmaTokenizer",
            "use_default_system_prompt": False,
        },
        special_tokens_map={
            "additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"],
            **_map(_GEMMA_TOKENS),
        },
        generation_config={
            "_from_model_config": True,
            "bos_token_id": 2,
            "cache_implementation": "hybrid",
            "eos_token_id": [1, 107],
            "pad_token_id": 0,
            "transformers_version": "4.42.4",
        },
        template="gemma-2",
        place="tokenizer_config.json",
        shards=2,
        others=_SPM,
        seed=4,
    ),
)

# ---------------------------------------------------------------- Llama, Mistral

_LLAMA_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_LLAMA_3_TOKENS = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
_MISTRAL_TOKENIZER: Json = {
    "add_bos_token": True,
    "add_eos_token": False,
    **_LLAMA_TOKENS,
    "clean_up_tokenization_spaces": False,
    "legacy": False,
    "model_max_length": LONG,
    "pad_token": None,
    "sp_model_kwargs": {},
    "spaces_between_special_tokens": False,
    "tokenizer_class": "LlamaTokenizer",
    "use_default_system_prompt": False,
}
_MISTRAL_CONFIG = {
    "architectures": ["MistralForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 48,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}

LLAMAS = (
    Publication(
        name="llama-2-7b-chat-hf",
        family="llama",
        shape="llama2",
        vocabulary=vocabularies.llama_2,
        config={
            "_name_or_path": "meta-llama/Llama-2-7b-chat-hf",
            "architectures": ["LlamaForCausalLM"],
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_act": "silu",
            "hidden_size": 32,
            "initializer_range": 0.02,
            "intermediate_size": 48,
            "max_position_embeddings": 4096,
            "model_type": "llama",
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "num_key_value_heads": 4,
            "pretraining_tp": 1,
            "rms_norm_eps": 1e-05,
            "rope_scaling": None,
            "tie_word_embeddings": False,
            "torch_dtype": "float16",
            "transformers_version": "4.32.0.dev0",
            "use_cache": True,
        },
        tokenizer_config={
            "add_bos_token": True,
            "add_eos_token": False,
            **{name: _token(text, typed=True) for name, text in _LLAMA_TOKENS.items()},
            "clean_up_tokenization_spaces": False,
            "legacy": False,
            "model_max_length": LONG,
            "pad_token": None,
            "padding_side": "right",
            "sp_model_kwargs": {},
            "tokenizer_class": "LlamaTokenizer",
        },
        special_tokens_map=_map(_LLAMA_TOKENS),
        generation_config={
            "bos_token_id": 1,
            "do_sample": True,
            "eos_token_id": 2,
            "max_length": 4096,
            "pad_token_id": 0,
            "temperature": 0.6,
            "top_p": 0.9,
            "transformers_version": "4.32.0.dev0",
        },
        template="llama-2",
        place="tokenizer_config.json",
        shards=2,
        dtype="float16",
        rebuilt=True,
        others={
            **_SPM,
            "LICENSE.txt": b"LLAMA 2 COMMUNITY LICENSE AGREEMENT",
            "USE_POLICY.md": b"# Use Policy",
            "pytorch_model.bin.index.json": b'{"metadata": {}, "weight_map": {}}',
        },
        seed=5,
    ),
    Publication(
        name="llama-3.2-1b-instruct",
        family="llama",
        shape="llama3",
        vocabulary=vocabularies.llama_3,
        config={
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": "<|begin_of_text|>",
            "eos_token_id": ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"],
            "head_dim": 8,
            "hidden_act": "silu",
            "hidden_size": 32,
            "initializer_range": 0.02,
            "intermediate_size": 48,
            "max_position_embeddings": 131072,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "num_key_value_heads": 1,
            "pretraining_tp": 1,
            "rms_norm_eps": 1e-05,
            "rope_scaling": {
                "factor": 32.0,
                "high_freq_factor": 4.0,
                "low_freq_factor": 1.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
            "rope_theta": 500000.0,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "transformers_version": "4.45.0.dev0",
            "use_cache": True,
        },
        tokenizer_config={
            **_LLAMA_3_TOKENS,
            "clean_up_tokenization_spaces": True,
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": 131072,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        special_tokens_map=_map(_LLAMA_3_TOKENS),
        generation_config={
            "bos_token_id": "<|begin_of_text|>",
            "do_sample": True,
            "eos_token_id": ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"],
            "temperature": 0.6,
            "top_p": 0.9,
            "transformers_version": "4.45.0.dev0",
        },
        template="llama-3.2",
        place="tokenizer_config.json",
        others={
            "LICENSE.txt": b"LLAMA 3.2 COMMUNITY LICENSE AGREEMENT",
            "USE_POLICY.md": b"# Use Policy",
            "original/consolidated.00.pth": b"PK\x03\x04",
            "original/params.json": b'{"dim": 2048}',
            "original/tokenizer.model": b"IQ== 0\n",
        },
        seed=6,
    ),
    Publication(
        name="mistral-7b-instruct-v0.1",
        family="mistral",
        shape="mistral1",
        vocabulary=vocabularies.llama_2,
        config={
            **_MISTRAL_CONFIG,
            "rope_theta": 10000.0,
            "sliding_window": 8,
            "transformers_version": "4.34.0.dev0",
        },
        tokenizer_config={**_MISTRAL_TOKENIZER, "additional_special_tokens": [], "legacy": True},
        special_tokens_map=_map(_LLAMA_TOKENS),
        generation_config={
            "_from_model_config": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "transformers_version": "4.34.0.dev0",
        },
        template="mistral-v0.1",
        place="tokenizer_config.json",
        shards=2,
        others=_SPM,
        seed=7,
    ),
    Publication(
        name="mistral-7b-instruct-v0.3",
        family="mistral",
        shape="mistral3",
        vocabulary=vocabularies.mistral_3,
        config={
            **_MISTRAL_CONFIG,
            "attention_dropout": 0.0,
            "transformers_version": "4.42.0.dev0",
        },
        tokenizer_config={**_MISTRAL_TOKENIZER, "add_prefix_space": None},
        special_tokens_map=_map(_LLAMA_TOKENS),
        generation_config={
            "_from_model_config": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "transformers_version": "4.42.0.dev0",
        },
        template="mistral-v0.3",
        place="tokenizer_config.json",
        shards=3,
        others={
            **_SPM,
            "tokenizer.model.v3": _SPM["tokenizer.model"],
            "params.json": b'{"dim": 4096, "n_layers": 32}',
            "consolidated.safetensors": b"",  # is written with the weights
        },
        seed=8,
    ),
    Publication(
        name="mistral-nemo-instruct-2407",
        family="mistral",
        shape="tekken",
        vocabulary=vocabularies.tekken,
        config={
            **_MISTRAL_CONFIG,
            "attention_dropout": 0.0,
            "head_dim": 12,
            "max_position_embeddings": 131072,
            "transformers_version": "4.43.0.dev0",
        },
        tokenizer_config={
            "add_bos_token": True,
            "add_eos_token": False,
            "add_prefix_space": False,
            **_LLAMA_TOKENS,
            "clean_up_tokenization_spaces": False,
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": LONG,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
        special_tokens_map=_map(_LLAMA_TOKENS),
        generation_config={
            "_from_model_config": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "transformers_version": "4.43.0.dev0",
        },
        template="mistral-nemo",
        place="tokenizer_config.json",
        shards=2,
        others={
            "tekken.json": b'{"config": {"version": "v3"}, "vocab": []}',
            "params.json": b'{"dim": 5120, "n_layers": 40}',
            "consolidated.safetensors": b"",
        },
        seed=19,
    ),
)

# ---------------------------------------------------------------- Qwen, SmolLM

_QWEN_TOKENIZER = {
    "add_bos_token": False,
    "add_prefix_space": False,
    "additional_special_tokens": [f"<|{name}|>" for name in vocabularies.QWEN_SPECIAL[1:]],
    "bos_token": None,
    "clean_up_tokenization_spaces": False,
    "eos_token": "<|im_end|>",
    "errors": "replace",
    "model_max_length": 131072,
    "pad_token": "<|endoftext|>",
    "split_special_tokens": False,
    "tokenizer_class": "Qwen2Tokenizer",
    "unk_token": None,
}
_QWEN_CONFIG = {
    "attention_dropout": 0.0,
    "bos_token_id": "<|endoftext|>",
    "eos_token_id": "<|im_end|>",
    "hidden_act": "silu",
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
}
_QWEN_GENERATION = {
    "bos_token_id": "<|endoftext|>",
    "pad_token_id": "<|endoftext|>",
    "do_sample": True,
    "eos_token_id": ["<|im_end|>", "<|endoftext|>"],
    "top_k": 20,
}
_GPT_2_FILES = {"merges.txt": b"#version: 0.2\n", "vocab.json": b"{}"}
_SMOLLM_TOKENS = {
    "bos_token": "<|im_start|>",
    "eos_token": "<|im_end|>",
    "pad_token": "<|im_end|>",
    "unk_token": "<|endoftext|>",
}

QWENS = (
    Publication(
        name="qwen2.5-0.5b-instruct",
        family="qwen2",
        shape="qwen",
        vocabulary=vocabularies.qwen_2,
        padding=271,
        config={
            "architectures": ["Qwen2ForCausalLM"],
            **_QWEN_CONFIG,
            "max_position_embeddings": 32768,
            "max_window_layers": 21,
            "model_type": "qwen2",
            "rope_theta": 1000000.0,
            "sliding_window": 32768,
            "transformers_version": "4.43.1",
        },
        tokenizer_config=_QWEN_TOKENIZER,
        generation_config={
            **_QWEN_GENERATION,
            "repetition_penalty": 1.1,
            "temperature": 0.7,
            "top_p": 0.8,
            "transformers_version": "4.37.0",
        },
        template="qwen2.5",
        place="tokenizer_config.json",
        others={**_GPT_2_FILES, "LICENSE": b"Apache License"},
        seed=10,
    ),
    Publication(
        name="qwen3-0.6b",
        family="qwen3",
        shape="qwen",
        vocabulary=vocabularies.qwen_3,
        padding=267,
        config={
            "architectures": ["Qwen3ForCausalLM"],
            "attention_bias": False,
            **_QWEN_CONFIG,
            "head_dim": 16,
            "max_position_embeddings": 40960,
            "max_window_layers": 28,
            "model_type": "qwen3",
            "rope_scaling": None,
            "rope_theta": 1000000,
            "sliding_window": None,
            "transformers_version": "4.51.0",
        },
        tokenizer_config=_QWEN_TOKENIZER,
        generation_config={
            **_QWEN_GENERATION,
            "temperature": 0.6,
            "top_p": 0.95,
            "transformers_version": "4.51.0",
        },
        template="qwen3",
        place="tokenizer_config.json",
        others={**_GPT_2_FILES, "LICENSE": b"Apache License"},
        seed=11,
    ),
    Publication(
        name="smollm2-135m-instruct",
        family="llama",
        shape="smollm2",
        vocabulary=vocabularies.smollm_2,
        config={
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_act": "silu",
            "hidden_size": 48,
            "initializer_range": 0.041666666666666664,
            "intermediate_size": 48,
            "is_llama_config": True,
            "max_position_embeddings": 8192,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": 6,
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
            "pad_token_id": 2,
            "pretraining_tp": 1,
            "rms_norm_eps": 1e-05,
            "rope_interleaved": False,
            "rope_scaling": None,
            "rope_theta": 100000,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}},
            "transformers_version": "4.42.3",
            "use_cache": True,
        },
        tokenizer_config={
            "add_prefix_space": False,
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
            **_SMOLLM_TOKENS,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 8192,
            "tokenizer_class": "GPT2Tokenizer",
            "vocab_size": 49152,
        },
        special_tokens_map={
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
            **_map(_SMOLLM_TOKENS),
        },
        generation_config={
            "_from_model_config": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 2,
            "transformers_version": "4.42.3",
        },
        template="smollm2",
        place="tokenizer_config.json",
        others=_GPT_2_FILES,
        rebuilt=True,
        seed=12,
    ),
)

PUBLICATIONS: Sequence[Publication] = (*GEMMAS, *LLAMAS, *QWENS)
"""All of them."""
