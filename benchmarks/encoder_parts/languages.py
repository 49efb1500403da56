"""Headlines in other languages: an encoder for English beside a language model of many."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import core

FILE = Path(__file__).with_name("languages.toml")
_ENGLISH = "{text} This news is about"


def right(encoder: str, decoder: str) -> dict[str, dict[str, dict[str, int]]]:
    """Return the number of right labels by language, model and the language of the labels.

    The encoder reads English labels only: it cannot tell those of the other languages apart.
    """
    sets = tomllib.loads(FILE.read_text(encoding="utf-8"))
    with core.load_model(encoder, backend="encoder") as model:
        encoded = {
            name: {"english": _count(of, model.classify(_texts(of), labels=of["english"]))}
            for name, of in sets.items()
        }
    with core.load_model(decoder, backend="openvino", options={"dtype": "float32"}) as model:
        decoded = {}
        for name, of in sets.items():
            english = model.classify(_prompts(of, _ENGLISH), labels=of["english"])
            own = model.classify(_prompts(of, of["template"]), labels=of["labels"], label_prefix="")
            decoded[name] = {"english": _count(of, english), "own": _count(of, own)}
    return {name: {"encoder": encoded[name], "decoder": decoded[name]} for name in sets}


def _texts(of: dict[str, Any]) -> list[str]:
    return [text for _, text in of["rows"]]


def _prompts(of: dict[str, Any], template: str) -> list[str]:
    return [template.format(text=text) for text in _texts(of)]


def _count(of: dict[str, Any], results: Sequence[core.ClassifyResult]) -> int:
    """Return the number of results whose label has the place of the gold one."""
    gold = [of["labels"].index(label) for label, _ in of["rows"]]
    names = (of["labels"], of["english"])
    return sum(
        result.label in [labels[place] for labels in names]
        for place, result in zip(gold, results, strict=True)
    )
