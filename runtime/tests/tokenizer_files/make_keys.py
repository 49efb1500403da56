"""Write the keys of tokenizer_config.json that transformers has (README.md).

The ids that it writes for each published directory, read by AutoTokenizer and as it stands, and the
arguments of the classes.
"""

from __future__ import annotations

import inspect
import json
import re
import tempfile
from pathlib import Path

from transformers import (
    AutoTokenizer,
    GemmaTokenizer,
    GPT2Tokenizer,
    LlamaTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
)

from runtime.tests.published.publications import PUBLICATIONS
from runtime.tests.published.writing import write

FILE = Path(__file__).parent / "keys.json"
CLASSES = (PreTrainedTokenizerFast, LlamaTokenizer, GemmaTokenizer, Qwen2Tokenizer, GPT2Tokenizer)
NOT_OF_FILES = {  # objects of Python, which no JSON file holds
    *("self", "args", "kwargs", "vocab", "merges", "unk_id", "post_processor", "tokenizer"),
    *("tokenizer_object", "tokenizer_padding", "tokenizer_truncation", "files_loaded", "gguf_file"),
}


def saved() -> set[str]:
    """Return the keys that are saved."""
    keys = set()
    for publication in PUBLICATIONS:
        with tempfile.TemporaryDirectory() as name:
            directory = write(publication, Path(name))
            for reader in (AutoTokenizer, PreTrainedTokenizerFast):
                reader.from_pretrained(directory).save_pretrained(directory / "saved")
                keys |= set(json.loads((directory / "saved/tokenizer_config.json").read_text()))
    return keys


def arguments() -> set[str]:
    """Return the names of arguments, also of those that are taken out of ``kwargs``."""
    named = {name for one in CLASSES for name in inspect.signature(one.__init__).parameters}
    source = "".join(
        inspect.getsource(one.__init__)
        for one in (PreTrainedTokenizerBase, PreTrainedTokenizerFast)
    )
    taken = set(re.findall(r'kwargs\.(?:pop|get|setdefault)\("([a-z][a-z_]*)"', source))
    return (named | taken) - NOT_OF_FILES


def main() -> None:
    """Write them."""
    FILE.write_text(json.dumps(sorted(saved() | arguments()), indent=1) + "\n")


if __name__ == "__main__":
    main()
