"""The chat templates of a model directory; publishers store them in five places.

Separate files take precedence, as in transformers: chat_template.jinja, named "default", and
additional_chat_templates/NAME.jinja. Otherwise ``chat_template`` of tokenizer_config.json is used,
one text or a list of named ones, and then chat_template.json and processor_config.json, used by
multimodal models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import (
    ChatTemplateError,
    InvalidModelError,
    InvalidOptionError,
    ModelNotFoundError,
    TokenizerError,
)
from core.models.files import read_model_file
from core_runtime.checkpoint.fields import JsonFiles

MAX_TEMPLATE_BYTES = 2**20
"""The largest size of a template file in bytes; the longest in use are below 20 KB."""

TEMPLATES = "additional_chat_templates"
"""The folder of a directory's templates with other names than "default"."""

_DEFAULT = "default"
_FILES = ("tokenizer_config.json", "chat_template.json", "processor_config.json")


def read_templates(
    directory: Path, files: JsonFiles
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return a directory's templates by name, and the unused keys by file.

    Raises `TokenizerError` for a broken file.
    """
    paths = {_DEFAULT: directory / "chat_template.jinja"} | {
        path.stem: path for path in sorted(directory.glob(f"{TEMPLATES}/*.jinja"))
    }
    texts = {name: text for name, path in paths.items() if (text := _text(path)) is not None}
    unread: dict[str, tuple[str, ...]] = {}
    for file in _FILES:
        more = _named(files, file)
        if texts and any(texts.get(name) != text for name, text in more.items()):
            unread[file] = ("chat_template, which differs from that in another file",)
        texts = texts or more
    return texts, unread


def chosen_template(templates: Mapping[str, str], name: str | None) -> str | None:
    """Return the template of this name, by default "default", or the only one; None for none.

    Raises `InvalidOptionError` for an unknown name, and `ChatTemplateError` if several exist and
    none is selected.
    """
    names = ", ".join(map(repr, sorted(templates)))
    if name is not None and name not in templates:
        known = f"one of the model's: {names}" if names else "no value: the model has no templates"
        raise InvalidOptionError("chat_template", name, known)
    if name is None and len(templates) > 1 and _DEFAULT not in templates:
        raise ChatTemplateError(
            f"The model has several chat templates, but none named 'default': {names}. Load it "
            "with the option chat_template set to one of these names."
        )
    only = next(iter(templates.values()), None)
    return templates.get(_DEFAULT if name is None else name, only)


def _text(path: Path) -> str | None:
    try:
        return read_model_file(path, MAX_TEMPLATE_BYTES).decode("utf-8-sig")
    except ModelNotFoundError:
        return None
    except InvalidModelError as error:
        raise TokenizerError(str(error)) from error
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path} is not UTF-8: {error}. Save it as UTF-8.") from error


def _named(files: JsonFiles, file: str) -> dict[str, str]:
    """Read the templates in a JSON file: one text, a list of pairs, or an object."""
    try:
        value: Any = files.read_if_there(file).get("chat_template")
    except InvalidModelError as error:
        raise TokenizerError(str(error)) from error

    pairs: Any = {_DEFAULT: value} if isinstance(value, str) else value or {}
    if isinstance(pairs, list):  # as in older tokenizer_config.json files
        items = [item if isinstance(item, dict) else {} for item in pairs]
        pairs = {item.get("name"): item.get("template") for item in items}
    if not isinstance(pairs, dict) or not all(
        isinstance(text, str) for pair in pairs.items() for text in pair
    ):
        raise TokenizerError(
            f"{files.directory / file}: chat_template is {json.dumps(value)[:60]}, neither a text "
            "nor a list of named texts. Download the model again."
        )
    return pairs
