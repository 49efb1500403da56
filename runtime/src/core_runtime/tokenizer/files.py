"""The tokenizer of a model directory, gathered from its files.

The tokens that end a generation are read from them and from the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer as Library

from core.errors import InvalidModelError, TokenizerError
from core_runtime.checkpoint.fields import ConfigFields, JsonFiles
from core_runtime.checkpoint.keys import report
from core_runtime.text.special_texts import END_MARKS
from core_runtime.tokenizer import tokenizer_json
from core_runtime.tokenizer.added_tokens import add_named_tokens, known_names
from core_runtime.tokenizer.named_tokens import CONFIG, read_named_tokens
from core_runtime.tokenizer.templates import read_templates
from core_runtime.tokenizer.tokenizer_json import read_library
from core_runtime.tokenizer.tokenizer_keys import check_tokenizer_config


def stop_tokens(
    directory: Path, library: Library, vocab_size: int, files: JsonFiles | None = None
) -> frozenset[int]:
    """Return the ids that end a generation, all below the model's ``vocab_size``.

    Read from ``eos_token_id`` in generation_config.json and config.json (there also in its
    text_config), from the ``eos_token`` of the tokenizer's files, and from the end marks that are
    special tokens of ``library``. Missing files and null are allowed. Raises `InvalidModelError`
    for broken files, wrong types and ids out of range, `ModelAccessError` for unreadable files.
    """
    files = files or JsonFiles(directory)
    config = _fields(files, "config.json")

    # By id, from the model's files.
    by_id = {
        *_eos_ids(_fields(files, "generation_config.json"), library, vocab_size),
        *_eos_ids(_holding_eos(config), library, vocab_size),
    }

    # By text, from the tokenizer's files.
    eos = known_names(library, read_named_tokens(files)).get("eos_token")
    end = None if eos is None else library.token_to_id(eos["content"])
    named = _special_ids(library, END_MARKS) | ({end} if end is not None else set())

    # The tokenizer may have tokens beyond the model's vocabulary, which are never generated.
    return frozenset(id for id in by_id | named if id < vocab_size)


def _fields(files: JsonFiles, name: str) -> ConfigFields:
    return ConfigFields(files.read_if_there(name), str(files.directory / name))


def _holding_eos(config: ConfigFields) -> ConfigFields:
    """Return the text model's section, unless the top level has the key."""
    text = config.section("text_config")
    return config if text is None or config.values.get("eos_token_id") is not None else text


def _eos_ids(fields: ConfigFields, library: Library, vocab_size: int) -> frozenset[int]:
    value = fields.values.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    added = library.get_added_tokens_decoder()
    for id in ids:
        number = isinstance(id, int) and not isinstance(id, bool)
        if not number or not (0 <= id < vocab_size or id in added):
            raise fields.error(
                f"eos_token_id contains {id!r:.60}, not a token id below {vocab_size}"
            )
    return frozenset(ids)


def _special_ids(library: Library, texts: tuple[str, ...]) -> frozenset[int]:
    added = library.get_added_tokens_decoder().items()
    return frozenset(id for id, token in added if token.special and token.content in texts)


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """The contents of a directory's tokenizer files.

    ``templates``: chat templates by name. ``special_texts`` are their variables ``bos_token``,
    ``eos_token`` etc.
    """

    library: Library
    model_type: str
    templates: Mapping[str, str]
    special_texts: Mapping[str, str]


def read_tokenizer_files(
    directory: Path, files: JsonFiles | None = None, ends: bool = False
) -> TokenizerFiles:
    """Read the tokenizer's files, and log their unused keys.

    ``ends``: tokens after a text are kept, and decoded texts are only shown.
    Raises `TokenizerError`, `ModelAccessError`, or `UnsupportedModelError` for refused keys.
    """
    files = files or JsonFiles(directory)
    library, notes = read_library(directory / tokenizer_json.FILE, ends)
    try:
        named = read_named_tokens(files)
        library, changed = add_named_tokens(library, named, str(directory / named.source))
        own, model = _fields(files, CONFIG), files.read_if_there("config.json")
        names = known_names(library, named)
        unused = check_tokenizer_config(own, names, library, model, ends)
    except InvalidModelError as error:
        raise TokenizerError(str(error)) from error

    templates, unread = read_templates(directory, files)
    report((*notes, *changed), str(directory / tokenizer_json.FILE))
    report((*unused, *unread.pop(CONFIG, ())), own.where)
    for name, keys in {**named.unread, **unread}.items():
        report(keys, str(directory / name))
    return TokenizerFiles(
        library=library,
        model_type=str(model.get("model_type", "")),
        templates=templates,
        special_texts={name: token["content"] for name, token in names.items()},
    )
