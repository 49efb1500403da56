"""docs/model_files_gguf.md says of every key what the code does with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import gguf
import pytest

from core_mlx_native.convert.tokenizer_files import write_templates, write_tokenizer
from core_runtime.gguf.config import generation_config, hf_config
from core_runtime.gguf.keys import HARMLESS, NEUTRAL
from core_runtime.gguf.source import GgufSource

PAGE = Path(__file__).parents[4] / "docs" / "model_files_gguf.md"


def _tables(start: str, end: str) -> list[dict[str, str]]:
    """The tables between two headings: the rest of a row, by each key in its first cell."""
    section = PAGE.read_text(encoding="utf-8").split(start, 1)[1].split(end, 1)[0]
    tables: list[dict[str, str]] = []
    for block in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        rows = [line.strip("| \n").split(" | ", 1) for line in block.splitlines()[2:]]
        tables.append({key: rest for cell, rest in rows for key in re.findall(r"`([^`]+)`", cell)})
    return tables


def _constants(names: type) -> list[str]:
    parts = [value for name, value in vars(names).items() if not name.startswith("_")]
    nested = [key for part in parts if isinstance(part, type) for key in _constants(part)]
    return [part for part in parts if isinstance(part, str)] + nested


def test_every_key_of_ggufs_has_its_row() -> None:
    model, adapter = _tables("### With `llama_cpp`", "### With `infer-cli convert`")
    patterns = [*model, *adapter]
    keys = {key.replace("{arch}", "ARCH") for key in _constants(gguf.Keys)}
    assert len(keys) > 200
    missing = [key for key in keys if not any(fnmatchcase(key, each) for each in patterns)]
    assert missing == []


def test_what_convert_refuses_or_passes_over_is_on_the_page() -> None:
    _, neutral, harmless = _tables("### With `infer-cli convert`", "## Ollama")
    assert neutral.keys() == {f"ARCH{key}" for key in NEUTRAL}
    assert harmless.keys() == {
        key if key.startswith("tokenizer") else f"ARCH{key}" for key in HARMLESS
    }
    for key, (value, reason) in NEUTRAL.items():
        shown, why = neutral[f"ARCH{key}"].split(" | ")
        assert shown == (str(value).lower() if isinstance(value, bool) else f"{value:g}")
        assert reason.split(" for this")[0].split(" for the")[0][:30] in why


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_what_convert_reads_is_on_the_page(
    tmp_path: Path, tiny_gguf: Callable[..., Any], architecture: str
) -> None:
    source = GgufSource(tiny_gguf(architecture).write(tmp_path / "m.gguf"))
    hf_config(source, "float32")
    generation_config(source.metadata)
    write_tokenizer(source.metadata, tmp_path)
    write_templates(source.metadata, tmp_path)
    honoured, neutral, harmless = _tables("### With `infer-cli convert`", "## Ollama")
    read = {re.sub(rf"^{architecture}\.", "ARCH.", key) for key in source.metadata._read}
    missing = read - honoured.keys() - neutral.keys() - harmless.keys()
    assert missing == set()
    # What the page says of both, with a word on the one architecture or tokenizer.
    assert read & {*neutral, *harmless} <= {
        "ARCH.attention.sliding_window",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.scores",
        "tokenizer.ggml.add_space_prefix",
    }
