"""Record what transformers makes of each directory of cases.py (README.md)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoTokenizer

from .cases import CASES, HERE, TEXTS, Case, write

MESSAGES = [{"role": "user", "content": "the <s> news"}]


def record(case: Case, directory: Path) -> dict[str, Any]:
    """Return ids, texts and the prompt of one directory."""
    tokenizer = AutoTokenizer.from_pretrained(write(case, directory))
    prompt = tokenizer.apply_chat_template(MESSAGES, tokenize=False)
    library = tokenizer._tokenizer
    marked = [tokenizer(text, add_special_tokens=False).input_ids for text in TEXTS]
    decoded = [tokenizer.decode(ids, skip_special_tokens=True) for ids in marked]
    library.no_truncation()
    library.no_padding()
    library.encode_special_tokens = True
    plain = [library.encode(text).ids for text in TEXTS]
    return {"plain": plain, "marked": marked, "decoded": decoded, "prompt": prompt}


def main() -> None:
    """Write the records; what is random has none."""
    records = {}
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as place:
            records[name] = record(case, Path(place)) if "dropout" not in name else {}
    lines = [f" {json.dumps(name)}: {json.dumps(made)}" for name, made in records.items()]
    head = f'{{\n "transformers": {json.dumps(transformers.__version__)},\n'
    (HERE / "reference.json").write_text(head + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
