"""Which tokens end a generation, from what a model directory says and from its vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library

from core.errors import ModelNotFoundError
from core.model_files import read_json_object
from core_mlx_native.fields import Fields

# What ends a turn or a text in known families, whatever the files say: many checkpoints name only
# one of several. <|endoftext|> may also be the BOS, the pad or the unknown token (GPT-2, Qwen,
# SmolLM2): it still stands between two documents in training, so a model that writes it has come
# to the end. As the BOS of a prompt it does no harm: only generated tokens are looked at.
_END_MARKS = (
    "<end_of_turn>",  # Gemma
    "<|eot_id|>",  # Llama 3
    "<|eom_id|>",  # Llama 3.1, before it waits for a tool
    "<|im_end|>",  # ChatML: Qwen, SmolLM
    "<|endoftext|>",
    "<｜end▁of▁sentence｜>",  # noqa: RUF001 - DeepSeek spells it with these characters
)


def stop_tokens(directory: Path, library: Library, vocab_size: int) -> frozenset[int]:
    """The ids that end a generation; ``vocab_size`` is the model's: every id is below it.

    Read from ``eos_token_id`` in generation_config.json and config.json (there also in its
    text_config), from ``eos_token`` in tokenizer_config.json, and from the end marks that are
    special tokens of ``library``. Missing files and null are fine. Raises `InvalidModelError`
    for broken files, wrong types and ids out of range, `ModelAccessError` for files that may
    not be read.
    """
    config = _fields(directory / "config.json")
    found = {
        *_eos_ids(_fields(directory / "generation_config.json"), vocab_size),
        *_eos_ids(_holding_eos(config), vocab_size),
    }
    named = {
        *_eos_token_ids(_fields(directory / "tokenizer_config.json"), library),
        *_special_ids(library, _END_MARKS),
    }
    # The vocabulary of the tokenizer may go beyond that of the model.
    return frozenset(found | {id for id in named if id < vocab_size})


def _fields(path: Path) -> Fields:
    try:
        return Fields(read_json_object(path), str(path))
    except ModelNotFoundError:
        return Fields({}, str(path))


def _holding_eos(config: Fields) -> Fields:
    """The text model's section, unless the whole model's config has the key."""
    text = config.section("text_config")
    return config if text is None or config.values.get("eos_token_id") is not None else text


def _eos_ids(fields: Fields, vocab_size: int) -> frozenset[int]:
    value = fields.values.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for id in ids:
        if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id < vocab_size:
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
