"""The tables of docs/model_files.md, made from those that the code reads.

``python tools/model_files.py --write`` renews them, and a test compares them with the code.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from core.models.weight_files import STRANGERS as FILES
from core_mlx_native.adapters.mlx_lm_keys import MLX_LM_KEYS, MLX_LM_PARAMETERS
from core_mlx_native.adapters.peft_keys import INITIALISATIONS, PEFT_KEYS
from core_runtime.checkpoint.config_keys import CONFIG_KEYS, FAMILY_KEYS, ROPE_KEYS
from core_runtime.checkpoint.generation_keys import GENERATION_KEYS
from core_runtime.checkpoint.keys import KeyRule, harmless
from core_runtime.checkpoint.names import HARMLESS, STRANGERS
from core_runtime.tokenizer.tokenizer_keys import LIBRARY_KEYS, TOKENIZER_KEYS

PAGE = Path(__file__).parents[1] / "docs" / "model_files.md"
KEYS: Mapping[str, Mapping[str, KeyRule]] = {
    "config.json": CONFIG_KEYS,
    **{f"config.json of {family}": keys for family, keys in FAMILY_KEYS.items()},
    "rope": ROPE_KEYS,
    "generation_config.json": GENERATION_KEYS,
    "PEFT": PEFT_KEYS,
    "init_lora_weights": INITIALISATIONS,
    "mlx-lm": MLX_LM_KEYS,
    "lora_parameters": MLX_LM_PARAMETERS,
    "tokenizer_config.json": TOKENIZER_KEYS,
    "tokenizer.json": LIBRARY_KEYS,
}
NAMES: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "files": ("file", "what it is", FILES),
    "harmless tensors": ("tensor", "what it is", HARMLESS),
    "refused tensors": ("tensor", "what it is", STRANGERS),
}
_PLAIN = harmless("of which no value counts")
_MARKED = re.compile(r"(<!-- table: (.*?) -->\n).*?(<!-- end -->)", flags=re.DOTALL)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write them into {PAGE.name}")
    page = with_tables(PAGE.read_text(encoding="utf-8"))
    if parser.parse_args().write:
        PAGE.write_text(page, encoding="utf-8")
    else:
        print(page)


def with_tables(page: str) -> str:
    """Return the page with today's tables between their marks. Raises KeyError for no table."""
    return _MARKED.sub(lambda mark: f"{mark[1]}\n{table(mark[2])}\n{mark[3]}", page)


def table(name: str) -> str:
    """Return a table in Markdown."""
    if name in NAMES:
        first, second, rows = NAMES[name]
        lines = [f"| `{pattern}` | {what} |" for pattern, what in rows.items()]
        return "\n".join([f"| {first} | {second} |", "|---|---|", *lines]) + "\n"
    lines = [
        f"| {', '.join(f'`{one}`' for one, _ in same)} | {_verdict(key)} | {key.why} |"
        for key, same in groupby(KEYS[name].items(), key=lambda item: item[1])
    ]
    return "\n".join(["| key | | why |", "|---|---|---|", *lines]) + "\n"


def _verdict(key: KeyRule) -> str:
    """Return the verdict, with the exempt values, apart from those that always are."""
    exempt = [f"`{json.dumps(value)}`" for value in key.neutral if not _PLAIN.is_neutral(value)]
    return f"{key.verdict}, except {' and '.join(exempt)}" if exempt else key.verdict


if __name__ == "__main__":
    main()
