"""The tokenizer's files in a model directory: tokenizer.json and what belongs to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core_mlx_native.convert.files import write_json, write_text
from core_mlx_native.convert.metadata import Metadata
from core_mlx_native.convert.vocabulary import adds_bos, build_tokenizer, special_ids


def write_tokenizer(meta: Metadata, directory: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and, if there is one, chat_template.jinja."""
    build_tokenizer(meta).save(str(directory / "tokenizer.json"), pretty=False)
    write_json(directory / "tokenizer_config.json", _tokenizer_config(meta))
    template = meta.text("tokenizer.chat_template", "")
    if template:
        write_text(directory / "chat_template.jinja", template)


def _tokenizer_config(meta: Metadata) -> dict[str, Any]:
    # The class that takes tokenizer.json as it is; others rebuild parts of it from their own code.
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": adds_bos(meta),
        "clean_up_tokenization_spaces": False,
        "model_max_length": meta.integer(".context_length"),
        **_named_tokens(meta),
    }


def _named_tokens(meta: Metadata) -> dict[str, str]:
    tokens = meta.texts("tokenizer.ggml.tokens")
    return {f"{name}_token": tokens[index] for name, index in special_ids(meta).items()}
