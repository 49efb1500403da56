"""The unused keys of a GGUF file: harmless ones, and the others, which are refused.

Keys read by a conversion are honoured (`Metadata` records them). Of the rest, keys of the
architecture and the tokenizer could change results: an unlisted one stops the conversion.
llama.cpp's code for these architectures does not read other namespaces.
"""

from __future__ import annotations

from collections.abc import Mapping

from core_runtime.gguf.metadata import Metadata

_READS = "llama.cpp reads it only for other architectures"
_KIND = "llama.cpp reads it only for other kinds of tokenizers"
_FILL = "fill-in-the-middle tokens, which no chat or classification uses"

_STRIPPING = ("phi-3", "phi3")
HARMLESS: Mapping[str, str] = {
    ".vocab_size": "the rows of the embedding are counted",
    ".tensor_data_layout": "the row order of every file of this architecture",
    ".attention.layer_norm_epsilon": "these architectures have RMS norms",
    ".rope.scaling.original_context_length": "unused by linear scaling, the only supported kind",
    ".rope.scaling.finetuned": "it describes the training",
    "tokenizer.ggml.pre": "SentencePiece vocabularies have no pre-tokenizer",
    "tokenizer.ggml.scores": "byte-level vocabularies use merges",
    "tokenizer.ggml.token_type_count": _KIND,
    "tokenizer.ggml.add_eos_token": "a prompt is continued: nothing is appended",
    "tokenizer.ggml.add_sep_token": _KIND,
    "tokenizer.ggml.add_space_prefix": "byte-level vocabularies add no space",
    "tokenizer.ggml.remove_extra_whitespaces": _KIND,
    "tokenizer.ggml.precompiled_charsmap": _KIND,
    "tokenizer.ggml.normalizer.lowercase": _KIND,
    "tokenizer.ggml.normalizer.strip_accents": _KIND,
    "tokenizer.ggml.seperator_token_id": "it separates pairs of texts, which encoders read",
    "tokenizer.ggml.mask_token_id": "encoders are trained with it",
    "tokenizer.ggml.cls_token_id": "encoders begin with it",
    "tokenizer.ggml.fim_pre_token_id": _FILL,
    "tokenizer.ggml.fim_suf_token_id": _FILL,
    "tokenizer.ggml.fim_mid_token_id": _FILL,
    "tokenizer.ggml.prefix_token_id": _FILL,
    "tokenizer.ggml.suffix_token_id": _FILL,
    "tokenizer.ggml.middle_token_id": _FILL,
    "tokenizer.ggml.add_unknown_token": "written by Ollama's converter; no tokenizer reads it",
    "tokenizer.ggml.add_padding_token": "written by Ollama's converter; no tokenizer reads it",
    "tokenizer.chat_templates": "the templates themselves are in keys with these names",
    "tokenizer.huggingface.json": "other keys hold the vocabulary",
    "tokenizer.rwkv.world": _KIND,
}
"""Keys that do not affect a converted model, with the reason."""

NEUTRAL: Mapping[str, tuple[object, str]] = {
    ".attention.causal": (True, "the model reads tokens after the current one"),
    ".pooling_type": (0, "an embedding model; a directory cannot represent its pooling"),
    ".attn_logit_softcapping": (0.0, "llama.cpp has no such cap for this architecture"),
    ".attention.sliding_window": (0, "llama.cpp has no window for this architecture"),
    ".attention.max_alibi_bias": (0.0, _READS),
    ".attention.clamp_kqv": (0.0, _READS),
    ".rope.scaling.attn_factor": (1.0, "attention is scaled by it"),
    ".rope.scaling.alpha": (0.0, _READS),
    ".expert_used_count": (0, "experts are not supported"),
    ".expert_group_count": (0, "experts are not supported"),
    ".expert_group_used_count": (0, "experts are not supported"),
    ".leading_dense_block_count": (0, "experts are not supported"),
    ".nextn_predict_layers": (0, "layers that predict further tokens are not supported"),
}
"""Keys that are harmless with this value, and refused with any other, with the reason."""


def check_keys(meta: Metadata) -> None:
    """Raise `Metadata.error` for the first key that was neither read nor listed here."""
    name = meta.text("general.name", "")
    if any(mark in name.lower() for mark in _STRIPPING):
        raise meta.error(
            f"from the name {name!r:.60} llama.cpp infers that special tokens strip the white "
            "space after them, which is not supported"
        )
    for key, value in meta.unread():
        own = key.removeprefix(meta.architecture)
        if not key.startswith((f"{meta.architecture}.", "tokenizer.")) or own in HARMLESS:
            continue
        neutral, reason = NEUTRAL.get(own, (None, "the key is not converted"))
        if neutral is None or value != neutral:
            raise meta.error(
                f"the metadata has {key}={value!r:.60}: {reason}. Use backend llama_cpp, which "
                "reads GGUF files directly"
            )
