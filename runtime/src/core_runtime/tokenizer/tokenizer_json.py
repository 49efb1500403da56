"""Reading tokenizer.json, with checks before and after the library parses it.

Before: a ``Precompiled`` normalizer contains SentencePiece's character map in base64 (the size of a
trie in four bytes, the trie, and texts). The library allocates twice that size, whatever the length
of the string, up to 8 GiB, and aborts the process if it cannot.

After: the library ignores unknown keys, which a newer version may have written.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers.models import BPE

from core.errors import InvalidModelError, ModelNotFoundError, TokenizerError
from core.models.files import read_model_file
from core_runtime.checkpoint.keys import UNKNOWN
from core_runtime.tokenizer.library import appended
from core_runtime.tokenizer.missing import missing_tokenizer
from core_runtime.tokenizer.named_tokens import listing
from core_runtime.tokenizer.tokenizer_keys import LIBRARY_KEYS

FILE = "tokenizer.json"
MAX_TOKENIZER_BYTES = 512 * 2**20
"""The largest size of a tokenizer.json in bytes; Gemma's, with 262,144 tokens, has 33 MB."""

_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_OLDER_KEYS = ("add_prefix_space", "str_rep")  # of Metaspace, which has other names for them
_TAIL = 64  # bytes at the end, white space among them
_ENDS_WITH_MERGES = re.compile(rb"\]\s*\}\s*\}\s*$")
_VOCABULARY = re.compile(rb'"vocab"\s*:')
_KEY = "precompiled_charsmap"
_MAY_HOLD_KEY = re.compile(rb"charsmap|\\u00[4-7]")  # as it stands, or a letter of it escaped


def read_library(path: Path, ends: bool = False) -> tuple[Library, tuple[str, ...]]:
    """Return the library's tokenizer, and the notes to report on its file.

    ``ends``: tokens that it adds after a text are kept, which needs no note.
    Raises `TokenizerError` for a missing or broken file, `ModelAccessError`.
    """
    try:
        data = read_model_file(path, MAX_TOKENIZER_BYTES).removeprefix(BOM_UTF8)
    except (ModelNotFoundError, InvalidModelError) as error:
        raise TokenizerError(missing_tokenizer(path.parent) or str(error)) from error

    try:
        check_charsmaps(data)
        library = Library.from_buffer(data)
        return library, (*_switched_off(library, ends), *_unread(data, library))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a Rust panic is not an Exception
        raise TokenizerError(
            f"{path} is not a valid tokenizer: {error!s:.200}. Download or convert the model "
            "again; if a newer version of tokenizers wrote the file, upgrade that package."
        ) from error


def _switched_off(library: Library, ends: bool) -> Iterator[str]:
    """Yield the disabled features: dropping merges at random, and appending tokens to a text."""
    model = library.model
    if dropout := getattr(model, "dropout", None):
        model.dropout = None
        yield f"dropout={dropout:.3g}"
    if not ends and (tokens := appended(library)):
        yield f"post_processor adds {listing(tokens)} after a text"


# ------------------------------------------------------------------------------ unknown keys


def _unread(data: bytes, library: Library) -> Iterator[str]:
    """Yield the keys that the library has ignored."""
    content = _without_vocabulary(data, library)
    for name in _PARTS:
        part = getattr(library, name)
        if part is not None:
            yield from _unknown(content[name], json.loads(part.__getstate__()), name)

    sections = [("model", content["model"])]
    sections += [("added_tokens", token) for token in content.get("added_tokens") or []]
    unknown = {
        f"{name}.{key}": value
        for name, section in sections
        for key, value in section.items()
        if f"{name}.{key}" not in LIBRARY_KEYS and not UNKNOWN.is_neutral(value)
    }
    yield from (f"{name}={value!r:.60}" for name, value in unknown.items())


def _without_vocabulary(data: bytes, library: Library) -> Mapping[str, Any]:
    """Return the contents without tokens and merges, if they are at the end.

    That is where the library writes them; parsing them takes half a second in a large file.
    """
    start = _VOCABULARY.search(data)
    if start and isinstance(library.model, BPE) and _ENDS_WITH_MERGES.search(data[-_TAIL:]):
        try:
            head: dict[str, Any] = json.loads(data[: start.start()] + b'"vocab": 0}}')
        except ValueError:
            head = {}
        parts = [name for name in _PARTS if getattr(library, name) is not None]
        if all(name in head for name in ("model", *parts)):
            return head
    whole: dict[str, Any] = json.loads(data)
    return whole


def _unknown(written: Any, known: Any, name: str) -> Iterator[str]:
    """Yield the keys of a part of the file that the library does not write back."""
    if isinstance(written, list) and isinstance(known, list):
        for index, (one, other) in enumerate(zip(written, known, strict=False)):
            yield from _unknown(one, other, f"{name}[{index}]")
    if isinstance(written, dict) and isinstance(known, dict):
        for key, value in written.items():
            if key in known:
                yield from _unknown(value, known[key], f"{name}.{key}")
            elif key not in _OLDER_KEYS and not UNKNOWN.is_neutral(value):
                yield f"{name}.{key}={value!r:.60}"


# ------------------------------------------------------------------------- maps of characters


def check_charsmaps(data: bytes) -> None:
    """Raise ValueError for a map that claims a larger size than it has.

    The library reports any other fault of ``data``, the bytes of a tokenizer.json.
    """
    if _MAY_HOLD_KEY.search(data) is None:  # parsing takes a second for a large vocabulary
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
    """Check all pairs of one JSON object, repeated keys included, and keep nothing."""
    for key, value in pairs:
        if key == _KEY and isinstance(value, str):
            try:
                charsmap = base64.b64decode(value)
            except (binascii.Error, ValueError):
                continue

            claimed = int.from_bytes(charsmap[:4], "little")
            if claimed > len(charsmap) - 4:
                raise _CharsmapError(
                    f"its {_KEY} claims a trie of {claimed} bytes, but has only {len(charsmap)} "
                    "bytes"
                )
