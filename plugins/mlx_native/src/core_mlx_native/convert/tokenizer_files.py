"""The tokenizer and the chat templates of a GGUF file as files of a model directory."""

from __future__ import annotations

from pathlib import Path

from core_mlx_native.convert.staging import write_json, write_text
from core_runtime.gguf.metadata import Metadata
from core_runtime.gguf.templates import chat_templates
from core_runtime.gguf.vocabulary import build_tokenizer, tokenizer_config
from core_runtime.tokenizer.templates import TEMPLATES


def write_tokenizer(meta: Metadata, directory: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    build_tokenizer(meta).save(str(directory / "tokenizer.json"), pretty=False)
    write_json(directory / "tokenizer_config.json", tokenizer_config(meta))


def write_templates(meta: Metadata, directory: Path) -> None:
    """Write chat_template.jinja and, for named ones, additional_chat_templates/NAME.jinja."""
    default, named = chat_templates(meta)
    if default:
        write_text(directory / "chat_template.jinja", default)
    if named:
        folder = directory / TEMPLATES
        folder.mkdir()
        for name, template in named.items():
            write_text(folder / f"{name}.jinja", template)
