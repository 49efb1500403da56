"""The tokenizer of a model directory, gathered from its files.

Which tokens end a generation is read from them and from the vocabulary. One check comes before the
``tokenizers`` library reads a tokenizer.json: a ``Precompiled`` normalizer holds SentencePiece's
map of characters in base64 (the size of a trie in four bytes, the trie, and texts), and the library
allocates twice that size, whatever the string's own is, up to 8 GiB; a process that cannot have so
much is aborted, not refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library

from core.errors import InvalidModelError, ModelNotFoundError, TokenizerError
from core.models.files import read_model_file
from core.support import unicode_error
from core_mlx_native.checkpoint.fields import Fields, JsonFiles
from core_mlx_native.text.templates import read_templates
from core_runtime.text.special_texts import END_MARKS

_KEY = "precompiled_charsmap"
_MAY_HOLD_KEY = re.compile(rb"charsmap|\\u00[4-7]")  # as it stands, or a letter of it escaped
MAX_TOKENIZER_BYTES = 512 * 2**20
"""The most bytes of a tokenizer.json; Gemma's, with 262,144 tokens, has 33 MB."""


def check_charsmaps(data: bytes) -> None:
    """Raise ValueError for a map that claims to be larger than it is.

    What else is wrong with ``data``, the bytes of a tokenizer.json, is the library's to say.
    """
    if _MAY_HOLD_KEY.search(data) is None:  # to parse it takes a second for a large vocabulary
        return
    try:
        json.loads(data, object_pairs_hook=_check)
    except _CharsmapError:
        raise
    except (ValueError, RecursionError):
        return


class _CharsmapError(ValueError):
    pass


def _check(pairs: list[tuple[str, Any]]) -> None:
    """Check the pairs of one JSON object, of which nothing is kept; the library reads all pairs."""
    for key, value in pairs:
        if key == _KEY and isinstance(value, str):
            try:
                charsmap = base64.b64decode(value)
            except (binascii.Error, ValueError):
                continue

            claimed = int.from_bytes(charsmap[:4], "little")
            if claimed > len(charsmap) - 4:
                raise _CharsmapError(
                    f"its {_KEY} claims a trie of {claimed} bytes, and has {len(charsmap)} in all"
                )


def stop_tokens(
    directory: Path, library: Library, vocab_size: int, files: JsonFiles | None = None
) -> frozenset[int]:
    """The ids that end a generation; ``vocab_size`` is the model's: every id is below it.

    Read from ``eos_token_id`` in generation_config.json and config.json (there also in its
    text_config), from ``eos_token`` in tokenizer_config.json, and from the end marks that are
    special tokens of ``library``. Missing files and null are fine. Raises `InvalidModelError`
    for broken files, wrong types and ids out of range, `ModelAccessError` for files that may
    not be read.
    """
    files = files or JsonFiles(directory)
    config = _fields(files, "config.json")

    # By id, in the files of the model.
    found = {
        *_eos_ids(_fields(files, "generation_config.json"), library, vocab_size),
        *_eos_ids(_holding_eos(config), library, vocab_size),
    }

    # By text, in those of the tokenizer.
    named = {
        *_eos_token_ids(_fields(files, "tokenizer_config.json"), library),
        *_special_ids(library, END_MARKS),
    }

    # The vocabulary of the tokenizer may go beyond that of the model, which never writes these.
    return frozenset(id for id in found | named if id < vocab_size)


def _fields(files: JsonFiles, name: str) -> Fields:
    return Fields(files.read_if_there(name), str(files.directory / name))


def _holding_eos(config: Fields) -> Fields:
    """The text model's section, unless the whole model's config has the key."""
    text = config.section("text_config")
    return config if text is None or config.values.get("eos_token_id") is not None else text


def _eos_ids(fields: Fields, library: Library, vocab_size: int) -> frozenset[int]:
    value = fields.values.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    added = library.get_added_tokens_decoder()
    for id in ids:
        number = isinstance(id, int) and not isinstance(id, bool)
        if not number or not (0 <= id < vocab_size or id in added):
            raise fields.error(f"eos_token_id has {id!r:.60}, not a token id below {vocab_size}")
    return frozenset(ids)


def _eos_token_ids(fields: Fields, library: Library) -> list[int]:
    value = fields.values.get("eos_token")
    if value is None:
        return []
    text: Any = value.get("content") if isinstance(value, Mapping) else value
    try:
        id = library.token_to_id(text)
    except (TypeError, UnicodeEncodeError) as error:  # no text, or one with lone surrogates
        raise fields.error(
            f"eos_token is {value!r:.60}, neither a text nor an added token"
        ) from error
    return [] if id is None else [id]


def _special_ids(library: Library, texts: tuple[str, ...]) -> frozenset[int]:
    added = library.get_added_tokens_decoder().items()
    return frozenset(id for id, token in added if token.special and token.content in texts)


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """The contents of a directory's tokenizer files.

    ``templates``: those for chats, by name. ``special_texts`` are their variables ``bos_token``,
    ``eos_token`` and so on.
    """

    library: Library
    model_type: str
    templates: Mapping[str, str]
    special_texts: Mapping[str, str]


def read_tokenizer_files(directory: Path, files: JsonFiles | None = None) -> TokenizerFiles:
    """Read the tokenizer's files. Raises `TokenizerError` or `ModelAccessError`."""
    files = files or JsonFiles(directory)
    library = _library(directory / "tokenizer.json")
    own = _json(files, "tokenizer_config.json")
    model = _json(files, "config.json")
    return TokenizerFiles(
        library=library,
        model_type=str(model.get("model_type", "")),
        templates=read_templates(directory, files),
        special_texts=_special_texts(own, directory / "tokenizer_config.json"),
    )


def _library(path: Path) -> Library:
    try:
        data = read_model_file(path, MAX_TOKENIZER_BYTES)
    except ModelNotFoundError:
        raise TokenizerError(
            f"The model has no tokenizer: there is no file {path}. Fetch or convert the model "
            "again with its tokenizer.json."
        ) from None
    except InvalidModelError as error:
        raise TokenizerError(str(error)) from error

    try:
        data = data.removeprefix(BOM_UTF8)
        check_charsmaps(data)
        return Library.from_buffer(data)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a Rust panic is no Exception
        raise TokenizerError(
            f"{path} is broken: {error!s:.200}. Fetch or convert the model again."
        ) from error


def _json(files: JsonFiles, name: str) -> Mapping[str, Any]:
    try:
        return files.read_if_there(name)
    except InvalidModelError as error:
        raise TokenizerError(str(error)) from error


def _special_texts(own: Mapping[str, Any], where: Path) -> dict[str, str]:
    texts = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = own.get(name)
        if isinstance(value, Mapping):  # an added token with its flags
            value = value.get("content")

        if isinstance(value, str):
            if unicode_error(value):
                raise TokenizerError(
                    f"{where}: {name} is {value!r:.60}, with a lone surrogate, which no text has. "
                    "Fetch or convert the model again."
                )
            texts[name] = value
    return texts
