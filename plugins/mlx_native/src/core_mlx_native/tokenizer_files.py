"""What a model directory says about its tokenizer, gathered from up to five files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library

from core.errors import InvalidModelError, ModelNotFoundError, TokenizerError
from core.model_files import read_json_object, typed_errors


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """``special_texts`` are the template variables ``bos_token``, ``eos_token`` and so on."""

    library: Library
    model_type: str
    chat_template: str | None
    special_texts: Mapping[str, str]
    bos_id: int | None


def read_tokenizer_files(directory: Path) -> TokenizerFiles:
    """Read them. Raises `TokenizerError` or `ModelAccessError`."""
    library = _library(directory / "tokenizer.json")
    own = _json(directory / "tokenizer_config.json")
    model = _json(directory / "config.json")
    texts = _special_texts(own)
    bos = library.token_to_id(texts["bos_token"]) if "bos_token" in texts else None
    return TokenizerFiles(
        library=library,
        model_type=str(model.get("model_type", "")),
        chat_template=_chat_template(directory, own),
        special_texts=texts,
        bos_id=bos if bos is not None else next(iter(_ids(model, "bos_token_id")), None),
    )


def _library(path: Path) -> Library:
    data = _read(path)
    if data is None:
        raise TokenizerError(
            f"The model has no tokenizer: there is no file {path}. Fetch or convert the model "
            "again with its tokenizer.json."
        )
    try:
        return Library.from_buffer(data)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a Rust panic is no Exception
        raise TokenizerError(
            f"{path} is broken: {error!s:.200}. Fetch or convert the model again."
        ) from error


def _read(path: Path) -> bytes | None:
    try:
        with typed_errors(str(path)):
            return path.read_bytes()
    except ModelNotFoundError:
        return None


def _json(path: Path) -> Mapping[str, Any]:
    try:
        return read_json_object(path)
    except ModelNotFoundError:
        return {}
    except InvalidModelError as error:
        raise TokenizerError(str(error)) from error


def _special_texts(own: Mapping[str, Any]) -> dict[str, str]:
    texts = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = own.get(name)
        if isinstance(value, Mapping):  # an added token with its flags
            value = value.get("content")
        if isinstance(value, str):
            texts[name] = value
    return texts


def _ids(config: Mapping[str, Any], key: str) -> frozenset[int]:
    text = config.get("text_config")
    found = config.get(key, text.get(key) if isinstance(text, Mapping) else None)
    items = found if isinstance(found, list) else [found]
    return frozenset(item for item in items if isinstance(item, int) and not isinstance(item, bool))


def _chat_template(directory: Path, own: Mapping[str, Any]) -> str | None:
    path = directory / "chat_template.jinja"
    data = _read(path)
    if data is not None:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise TokenizerError(f"{path} is not UTF-8: {error}. Save it as UTF-8.") from error
    found = own.get("chat_template")
    if isinstance(found, list):  # several by name, as in older tokenizer_config.json files
        named = {item.get("name"): item.get("template") for item in found if isinstance(item, dict)}
        found = named.get("default")
    if found is not None and not isinstance(found, str):
        raise TokenizerError(
            f"{directory / 'tokenizer_config.json'}: chat_template is {json.dumps(found)[:60]}, "
            "neither a text nor a list with one called 'default'."
        )
    return found
