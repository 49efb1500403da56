"""The tokens in tokenizer_config.json, special_tokens_map.json and added_tokens.json.

As transformers 5.24 reads them (``_from_pretrained`` in tokenization_utils_base.py): the two older
files are used only if tokenizer_config.json has no ``added_tokens_decoder``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.kit.support import unicode_error
from core_runtime.checkpoint.fields import ConfigFields, JsonFiles

CONFIG, MAP, OLDER = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
NAMES = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
LISTS = ("extra_special_tokens", "additional_special_tokens")
_SHOWN = 3  # texts that a note quotes
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")

Entry = Mapping[str, Any]
"""A token as in tokenizer.json: ``content`` and all flags, without an id."""

# The texts of transformers' tokenizer classes, for names that no file defines.
_GPT2 = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
_QWEN = dict.fromkeys(("eos_token", "unk_token", "pad_token"), "<|endoftext|>")
_GEMMA = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
_OF_CLASS = {
    "LlamaTokenizer": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "GemmaTokenizer": _GEMMA,
    "Qwen2Tokenizer": _QWEN,
    "GPT2Tokenizer": _GPT2,
}
_OF_MODEL = {"gemma": "GemmaTokenizer", "qwen": "Qwen2Tokenizer"}


@dataclass(frozen=True, slots=True)
class NamedTokens:
    """The tokens defined in the files.

    ``named``: special tokens by name, such as ``eos_token``. ``extra``: those without a name.
    ``listed``: tokens by their ids in the file ``source``. ``by_class``: the texts of transformers'
    class ``tokenizer_class``, for names that no file defines. ``unread``: unused keys by file.
    """

    source: str
    named: Mapping[str, Entry]
    extra: Sequence[Entry]
    listed: Mapping[int, Entry]
    tokenizer_class: str
    by_class: Mapping[str, str]
    unread: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_named_tokens(files: JsonFiles) -> NamedTokens:
    """Read the three files, each of which may be missing. Raises `InvalidModelError`."""
    own, names, older = (
        ConfigFields(files.read_if_there(name), str(files.directory / name))
        for name in (CONFIG, MAP, OLDER)
    )
    config = files.read_if_there("config.json")
    section = own.section("added_tokens_decoder")
    if section is None:
        return _older(own, names, older, config)

    listed = {_id(section, i): _entry(section, i, token) for i, token in section.values.items()}
    named, extra, name = _named(own), list(_extra(own)), _class(own.values, config)
    by_class = _by_class(name, own.values)

    # Other keys in the other two files are ignored.
    texts = {**by_class, **_texts(named)}
    other = {name: text for name, text in _texts(_named(names)).items() if text != texts.get(name)}
    known = set(_contents([*listed.values(), *named.values(), *extra]))
    others = [content for content in _contents(_extra(names)) if content not in known]
    ids = {entry["content"]: index for index, entry in listed.items()}
    lost = [f"{text}={index}" for text, index in older.values.items() if ids.get(text) != index]
    return NamedTokens(
        source=CONFIG,
        named=named,
        extra=extra,
        listed=listed,
        tokenizer_class=name,
        by_class=by_class,
        unread={
            MAP: tuple(f"{name}={text!r:.60}" for name, text in other.items()) + _note(others),
            OLDER: _note(lost),
        },
    )


def _older(
    own: ConfigFields, names: ConfigFields, older: ConfigFields, config: Mapping[str, Any]
) -> NamedTokens:
    """Read the layout of transformers before 4.34: special_tokens_map.json takes precedence."""
    named = {**_named(own), **_named(names)}
    extra, name = [*_extra(own), *_extra(names)], _class(own.values, config)
    special = {*_contents(named.values()), *_contents(extra)}
    listed = {}
    for content in older.values:
        token = {"content": content, "special": content in special}
        listed[older.integer(content, low=0)] = _entry(older, "a token", token)
    return NamedTokens(
        source=OLDER,
        named=named,
        extra=extra,
        listed=listed,
        tokenizer_class=name,
        by_class=_by_class(name, {**own.values, **names.values}),
    )


def names_token(name: str, value: object) -> bool:
    """Return True for a key that names a special token, e.g. ``image_token``."""
    return name.endswith("_token") and isinstance(value, str | Mapping)


def _named(fields: ConfigFields) -> dict[str, Entry]:
    """Return the tokens with a name: those of `NAMES`, then a model's own, each special."""
    values = fields.values
    named = {name: values[name] for name in NAMES if values.get(name) is not None}
    named |= {name: value for name, value in values.items() if names_token(name, value)}
    for name in ("model_specific_special_tokens", "extra_special_tokens"):
        if isinstance(more := values.get(name), Mapping):
            named.update(more)
    return {name: _entry(fields, name, value, special=True) for name, value in named.items()}


def _extra(fields: ConfigFields) -> Iterator[Entry]:
    """Yield the special tokens without a name."""
    for name in LISTS:
        value = fields.values.get(name) or []
        if isinstance(value, list):
            yield from (_entry(fields, name, token) for token in value)
        elif not isinstance(value, Mapping):
            raise fields.error(f"{name} is {value!r:.60}, not a list of tokens")


def _entry(fields: ConfigFields, name: str, value: object, *, special: bool = False) -> Entry:
    """Return a token with all flags; it may be a text, or an object with some of them."""
    values = {"content": value, "special": True} if isinstance(value, str) else value
    content = values.get("content") if isinstance(values, Mapping) else None
    if not isinstance(values, Mapping) or not isinstance(content, str):
        raise fields.error(f"{name} is {value!r:.60}, neither a text nor an added token")
    if unicode_error(content):
        raise fields.error(
            f"{name} is {content!r:.60}, not a valid text: it contains a lone surrogate"
        )

    flags = {flag: values.get(flag, False) for flag in _FLAGS}
    flags["special"] = special or flags["special"]
    flags["normalized"] = values.get("normalized", not flags["special"])
    for flag, on in flags.items():
        if not isinstance(on, bool):
            raise fields.error(f"{name}: {flag} is {on!r:.60}, not true or false")
    return {"content": content, **flags}


def _id(section: ConfigFields, index: str) -> int:
    if not (index.isascii() and index.isdigit() and len(index) < 10):
        raise section.error(f"{index!r:.60} is not a token id")
    return int(index)


def _class(own: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the class that transformers' AutoTokenizer uses, without the suffix "Fast".

    For Qwen 2 it always uses that family's class, and for Mistral a generic one.
    """
    family = str(config.get("model_type", ""))
    if family == "mistral":
        return ""
    by_model = next((_OF_MODEL[name] for name in _OF_MODEL if family.startswith(name)), "")
    by_file = own.get("tokenizer_class") or config.get("tokenizer_class") or by_model
    return by_model if family == "qwen2" else str(by_file).removesuffix("Fast")


def _by_class(name: str, keys: Container[str]) -> dict[str, str]:
    """Return the texts of a class for names without a key (a null key counts as one)."""
    return {name: text for name, text in _OF_CLASS.get(name, {}).items() if name not in keys}


def _texts(named: Mapping[str, Entry]) -> dict[str, str]:
    return {name: entry["content"] for name, entry in named.items()}


def _contents(entries: Iterable[Entry]) -> Iterator[str]:
    return (entry["content"] for entry in entries)


def _note(texts: list[str]) -> tuple[str, ...]:
    return (listing(texts),) if texts else ()


def listing(texts: Sequence[str]) -> str:
    """Return the first few texts, quoted, and the number of others."""
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(f"{text!r:.60}" for text in texts[:_SHOWN]) + more
