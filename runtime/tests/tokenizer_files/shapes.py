"""Small tokenizers of each kind, as tokenizer.json has them.

A vocabulary has a token ``<inv>`` that no merge makes; the added tokens are ``<s>``, ``</s>`` and
``<tool>``, which is not special.
"""

from __future__ import annotations

from typing import Any

from runtime.tests.published.shapes import SPACE, byte_alphabet, byte_tokens

Json = dict[str, Any]

WORDS = ("the", "news", "a", "b", "c", "d", ".", ",", "'", "n", "t", "is", "Ab", "don")
_ADDED = ("<s>", "</s>", "<tool>")
_PREPEND = {"type": "Prepend", "prepend": SPACE}
_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def flags(content: str, *, special: bool = True, normalized: bool = False, **others: Any) -> Json:
    """Return an added token without its id."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False}
    return {
        "content": content,
        **plain,
        "normalized": normalized,
        "special": special,
        **others,
    }


def _tokenizer(tokens: list[str], model: Json, **parts: Any) -> Json:
    """Return a tokenizer.json over these tokens, the added ones behind them."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    added = [
        {"id": len(tokens) + place, **flags(token, special=token != "<tool>")}
        for place, token in enumerate(_ADDED)
    ]
    empty = {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        **{**empty, **parts},
        "model": {**model, "vocab": vocabulary},
    }


def _bpe(merges: list[list[str]], **changes: Any) -> Json:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        **changes,
        "merges": merges,
    }


def of_bytes(**model: Any) -> Json:
    """Make a byte-level BPE, as Qwen and Llama 3 have one."""
    merges = [["t", "h"], ["th", "e"], ["Ġ", "the"], ["Ġ", "b"]]
    tokens = [*byte_alphabet(), "th", "the", "Ġthe", "Ġb", "<inv>"]
    return _tokenizer(tokens, _bpe(merges, **model), pre_tokenizer=BYTES, decoder=BYTES)


def of_pieces(kind: str, **model: Any) -> Json:
    """Make a BPE of SentencePiece: ``llama``, ``gemma``, or ``mistral`` with a Metaspace."""
    merges = [["t", "h"], ["th", "e"], [SPACE, "the"], [SPACE, "b"]]
    tokens = ["<unk>", *byte_tokens(), SPACE, *map(chr, range(33, 127))]
    tokens += ["th", "the", f"{SPACE}the", f"{SPACE}b", "<inv>"]
    back = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    steps: list[Json] = [back, {"type": "ByteFallback"}, {"type": "Fuse"}]
    parts: Json = {"decoder": {"type": "Sequence", "decoders": steps}}
    if kind == "llama":
        parts["normalizer"] = {"type": "Sequence", "normalizers": [_PREPEND, _REPLACE]}
    elif kind == "gemma":
        parts["normalizer"] = _REPLACE
    else:
        space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first"}
        parts["pre_tokenizer"] = {**space, "split": False}
    own = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, **model}
    return _tokenizer(tokens, _bpe(merges, **own), **parts)


def of_unigrams() -> Json:
    """Make a Unigram tokenizer, as XLM-R and T5 have one."""
    space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    pieces = ["<unk>", SPACE, *map(chr, range(33, 127)), "<inv>"]
    pieces += [SPACE + word for word in WORDS]
    made = _tokenizer(pieces, {"type": "Unigram", "unk_id": 0, "byte_fallback": False})
    vocabulary = [[piece, -float(len(pieces) - place)] for place, piece in enumerate(pieces)]
    model = {**made["model"], "vocab": vocabulary}
    return {**made, "pre_tokenizer": space, "decoder": space, "model": model}


def of_word_pieces() -> Json:
    """Make a WordPiece tokenizer, as BERT has one."""
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    tokens = ["[UNK]", *(word.lower() for word in dict.fromkeys(WORDS)), "##s", "##b", "<inv>"]
    return _tokenizer(
        list(dict.fromkeys(tokens)),
        {**model, "max_input_chars_per_word": 100},
        normalizer={**normalizer, "strip_accents": None, "lowercase": True},
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": False},
    )


def of_words() -> Json:
    """Make a WordLevel tokenizer."""
    model = {"type": "WordLevel", "unk_token": "[UNK]"}
    return _tokenizer(["[UNK]", *WORDS, "<inv>"], model, pre_tokenizer={"type": "Whitespace"})


def around(made: Json, before: list[str], after: list[str]) -> Json:
    """Return a tokenizer whose post-processor puts tokens around a text."""
    ids = {token["content"]: token["id"] for token in made["added_tokens"]}

    def special(token: str) -> Json:
        return {"SpecialToken": {"id": token, "type_id": 0}}

    text, pair = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    known = {one: {"id": one, "ids": [ids[one]], "tokens": [one]} for one in (*before, *after)}
    processor = {
        "type": "TemplateProcessing",
        "single": [*map(special, before), text, *map(special, after)],
        "pair": [text, pair],
        "special_tokens": known,
    }
    return {**made, "post_processor": processor}


def with_flags(made: Json, content: str, **changes: Any) -> Json:
    """Return a tokenizer with other flags of one added token."""
    added = [
        {**token, **changes} if token["content"] == content else token
        for token in made["added_tokens"]
    ]
    return {**made, "added_tokens": added}
