"""Write the names of all keys that transformers' configurations have, by family.

pip install 'transformers==5.24.*'
python -m runtime.tests.checkpoint.make_config_keys
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

from transformers import (  # type: ignore[import-not-found, unused-ignore]
    Gemma2Config,
    Gemma3Config,
    Gemma3TextConfig,
    GenerationConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

FILE = Path(__file__).resolve().parent / "config_keys.json"
CONFIGS = (
    *(Gemma2Config, Gemma3Config, Gemma3TextConfig, LlamaConfig),
    *(MistralConfig, Qwen2Config, Qwen3Config),
)


def main() -> None:
    """Write them, one family a line."""
    keys = {
        config.model_type: sorted(
            {field.name for field in fields(config)} | set(config().to_dict()) - {"model_type"}
        )
        for config in CONFIGS
    }
    keys["generation_config"] = sorted(vars(GenerationConfig()))
    lines = (f"{json.dumps(name)}: {json.dumps(names)}" for name, names in keys.items())
    FILE.write_text("{" + ",\n ".join(lines) + "}\n")


if __name__ == "__main__":
    main()
