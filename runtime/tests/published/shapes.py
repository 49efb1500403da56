"""tokenizer.json in the shape of each publisher, over any vocabulary.

README.md says which parts are published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

SPACE = "\u2581"
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA_3.replace("{1,3}", "")


@dataclass(frozen=True)
class Added:
    """One added token."""

    id: int
    content: str
    special: bool = True
    normalized: bool = False

    def entry(self) -> Json:
        """Return the token as tokenizer.json has it."""
        flags = {"single_word": False, "lstrip": False, "rstrip": False}
        return {
            "id": self.id,
            "content": self.content,
            **flags,
            "normalized": self.normalized,
            "special": self.special,
        }

    def decoded(self) -> Json:
        """Return the token as ``added_tokens_decoder`` of tokenizer_config.json has it."""
        names = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
        return {name: self.entry()[name] for name in names}


@dataclass(frozen=True)
class Vocabulary:
    """The tokens and merges of a byte-pair encoding, and the tokens added to it."""

    tokens: Mapping[str, int]
    merges: Sequence[tuple[str, str]]
    added: Sequence[Added]


Shape = dict[str, Any]


def shaped(name: str, vocabulary: Vocabulary) -> Json:
    """Return the contents of tokenizer.json in the shape called ``name``."""
    shape = SHAPES[name](vocabulary)
    pairs = shape.pop("pairs")
    merges: list[Any] = [list(merge) for merge in vocabulary.merges]
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        **shape.pop("model"),
        "vocab": dict(vocabulary.tokens),
        "merges": merges if pairs else [" ".join(merge) for merge in merges],
    }
    head = {"version": "1.0", "truncation": None, "padding": None}
    added = [token.entry() for token in vocabulary.added]
    return {**head, "added_tokens": added, **shape, "model": model}


def converted(name: str, vocabulary: Vocabulary) -> Json:
    """Return the contents of tokenizer.json that ``infer-cli convert`` would write.

    SentencePiece's are like that of Gemma 3, byte-level ones like that of Llama 3 or SmolLM2: the
    kinds that it has code for.
    """
    published = shaped(name, vocabulary)
    kept = {key: published[key] for key in ("added_tokens", "model", "post_processor", "decoder")}
    head = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None}
    if published["model"]["byte_fallback"]:
        return {**head, **kept, "normalizer": _REPLACE, "pre_tokenizer": None}
    splitter = published["pre_tokenizer"] if name == "smollm2" else _byte_level(LLAMA_3)
    return {**head, **kept, "pre_tokenizer": splitter}


_REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_PREPEND = {"type": "Prepend", "prepend": SPACE}


def _sentence_piece(vocabulary: Vocabulary, *, strips: bool, bos: str) -> Shape:
    restored = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    steps: list[Json] = [restored, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if strips:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": _leading(bos, vocabulary),
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
        "pairs": False,
    }


def _gemma(vocabulary: Vocabulary) -> Shape:
    shape = _sentence_piece(vocabulary, strips=False, bos="<bos>")
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"}
    return {**shape, "normalizer": _REPLACE, "pre_tokenizer": {**split, "invert": False}}


def _gemma_3(vocabulary: Vocabulary) -> Shape:
    shape = _gemma(vocabulary)
    return {**shape, "model": {**shape["model"], "ignore_merges": False}, "pairs": True}


def _llama_2(vocabulary: Vocabulary) -> Shape:
    shape = _sentence_piece(vocabulary, strips=True, bos="<s>")
    return {**shape, "normalizer": {"type": "Sequence", "normalizers": [_PREPEND, _REPLACE]}}


def _mistral_3(vocabulary: Vocabulary) -> Shape:
    shape = _sentence_piece(vocabulary, strips=True, bos="<s>")
    first = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": False}
    return {**shape, "pre_tokenizer": first}


def _tekken(vocabulary: Vocabulary) -> Shape:
    return {
        "normalizer": None,
        "pre_tokenizer": _byte_level(TEKKEN),
        "post_processor": _leading("<s>", vocabulary),
        "decoder": _BYTES,
        "model": {"ignore_merges": True},
        "pairs": False,
    }


def _llama_3(vocabulary: Vocabulary) -> Shape:
    processors = [{**_BYTES, "trim_offsets": False}, _leading("<|begin_of_text|>", vocabulary)]
    return {
        "normalizer": None,
        "pre_tokenizer": _byte_level(LLAMA_3),
        "post_processor": {"type": "Sequence", "processors": processors},
        "decoder": _BYTES,
        "model": {"ignore_merges": True},
        "pairs": False,
    }


def _qwen(vocabulary: Vocabulary) -> Shape:
    plain = {**_BYTES, "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    affixes = {"continuing_subword_prefix": "", "end_of_word_suffix": ""}
    return {
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": _byte_level(QWEN, trims=False),
        "post_processor": plain,
        "decoder": plain,
        "model": {**affixes, "ignore_merges": False},
        "pairs": False,
    }


def _smollm_2(vocabulary: Vocabulary) -> Shape:
    digits = {"type": "Digits", "individual_digits": True}
    words = {**_BYTES, "add_prefix_space": False}
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, words]},
        "post_processor": None,
        "decoder": _BYTES,
        "model": {},
        "pairs": False,
    }


_BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def _byte_level(pattern: str, *, trims: bool = True) -> Json:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": trims}
    steps = [{**split, "invert": False}, {**letters, "use_regex": False}]
    return {"type": "Sequence", "pretokenizers": steps}


def _leading(token: str, vocabulary: Vocabulary) -> Json:
    """Return the post-processor that puts one token before a text, and before each of a pair."""
    [index] = [added.id for added in vocabulary.added if added.content == token]

    def special(kind: int) -> Json:
        return {"SpecialToken": {"id": token, "type_id": kind}}

    first, second = ({"Sequence": {"id": "AB"[kind], "type_id": kind}} for kind in (0, 1))
    return {
        "type": "TemplateProcessing",
        "single": [special(0), first],
        "pair": [special(0), first, special(1), second],
        "special_tokens": {token: {"id": token, "ids": [index], "tokens": [token]}},
    }


SHAPES = {
    "gemma2": _gemma,
    "gemma3": _gemma_3,
    "llama2": _llama_2,
    "llama3": _llama_3,
    "mistral1": _llama_2,
    "mistral3": _mistral_3,
    "tekken": _tekken,
    "qwen": _qwen,
    "smollm2": _smollm_2,
}
"""By the publisher's first model with this shape."""


def byte_alphabet() -> list[str]:
    """Return GPT-2's letters for the 256 bytes: printable bytes first, as tiktoken ranks them."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in own]
    return [*map(chr, own), *(chr(256 + place) for place in range(len(others)))]


def byte_tokens() -> list[str]:
    """Return SentencePiece's tokens for the 256 bytes."""
    return [f"<0x{byte:02X}>" for byte in range(256)]


def chains(words: Iterable[str]) -> list[tuple[str, str]]:
    """Return merges that build each word letter by letter, from its left."""
    merges: dict[tuple[str, str], None] = {}
    for word in words:
        for end in range(1, len(word)):
            merges[word[:end], word[end]] = None
    return list(merges)
