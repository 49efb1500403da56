"""The error for a directory without tokenizer.json, with how to create one."""

from __future__ import annotations

import os
from pathlib import Path

# Other tokenizer layouts, each by one of its files, with the packages that transformers needs.
# AutoTokenizer does not convert a tekken.json by itself.
_LAYOUTS = (
    ("tekken.json", "transformers mistral-common", ", mistral_format=False"),
    ("tokenizer.model", "transformers sentencepiece protobuf tiktoken", ""),
    ("vocab.json", "transformers", ""),
    ("sentencepiece.bpe.model", "transformers sentencepiece protobuf", ""),
    ("vocab.txt", "transformers", ""),
)


def missing_tokenizer(directory: Path) -> str | None:
    """Return the message for a directory without tokenizer.json; None if it exists."""
    if os.path.lexists(directory / "tokenizer.json"):
        return None
    layouts = [layout for layout in _LAYOUTS if (directory / layout[0]).exists()]
    if not layouts:
        return (
            f"The model has no tokenizer: {directory / 'tokenizer.json'} does not exist. Download "
            "or convert the model again with its tokenizer.json."
        )
    name, packages, option = layouts[0]
    path = str(directory)
    return (
        f"{path} has no tokenizer.json, only {name}, which is not supported. transformers can "
        f"convert it (pip install {packages}): from transformers import AutoTokenizer; "
        f"AutoTokenizer.from_pretrained({path!r}{option}).save_pretrained({path!r}). "
        "docs/model_files.md lists what to check afterwards."
    )
