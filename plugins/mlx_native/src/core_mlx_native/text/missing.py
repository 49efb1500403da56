"""A directory without tokenizer.json: what is there instead, and how to make one of it."""

from __future__ import annotations

import os
from pathlib import Path

# The other layouts of a tokenizer, by a file of each, and the packages that transformers reads them
# with. A tekken.json has to be converted, which AutoTokenizer does not do by itself.
_LAYOUTS = (
    ("tekken.json", "transformers mistral-common", ", mistral_format=False"),
    ("tokenizer.model", "transformers sentencepiece protobuf tiktoken", ""),
    ("vocab.json", "transformers", ""),
)


def missing_tokenizer(directory: Path) -> str | None:
    """Return the message for a directory without tokenizer.json; None where it is there."""
    if os.path.lexists(directory / "tokenizer.json"):
        return None
    beside = [layout for layout in _LAYOUTS if (directory / layout[0]).exists()]
    if not beside:
        return (
            f"The model has no tokenizer: there is no file {directory / 'tokenizer.json'}. Fetch "
            "or convert the model again with its tokenizer.json."
        )
    name, packages, option = beside[0]
    path = str(directory)
    return (
        f"{path} has no tokenizer.json, only {name}, which is not read. transformers makes one of "
        f"it (pip install {packages}): from transformers import AutoTokenizer; "
        f"AutoTokenizer.from_pretrained({path!r}{option}).save_pretrained({path!r}). "
        "docs/model_files.md says what to check then."
    )
