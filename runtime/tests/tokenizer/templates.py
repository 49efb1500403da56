"""Directories with chat templates in the places where publishers have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import core

HI = [core.Message("user", "Hi")]


def named(**templates: str) -> list[dict[str, str]]:
    """The templates as a list, as tokenizer_config.json has several."""
    return [{"name": name, "template": text} for name, text in templates.items()]


def put(directory: Path, **files: Any) -> Path:
    """Write templates: ``jinja``, ``config``, ``legacy`` and ``processor`` by their places, others
    by name.
    """
    config: dict[str, Any] = {"eos_token": "</s>"}
    if "config" in files:
        config["chat_template"] = files.pop("config")
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    if "jinja" in files:
        (directory / "chat_template.jinja").write_text(files.pop("jinja"))
    if "legacy" in files:
        content = {"chat_template": files.pop("legacy")}
        (directory / "chat_template.json").write_text(json.dumps(content))
    if "processor" in files:
        content = {"chat_template": files.pop("processor"), "image_seq_length": 256}
        (directory / "processor_config.json").write_text(json.dumps(content))
    for name, text in files.items():
        (directory / "additional_chat_templates").mkdir(exist_ok=True)
        (directory / "additional_chat_templates" / f"{name}.jinja").write_text(text)
    return directory
