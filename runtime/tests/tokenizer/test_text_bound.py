"""The bound on what a token stands for: sound for the tokenizers that have one, none for others."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from core_runtime.tokenizer.model_tokenizer import Tokenizer
from core_runtime.tokenizer.text_bound import COMPOSING, text_bound

LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SENTENCE_PIECE = normalizers.Replace(" ", "▁")


def byte_level(*more: str, **options: Any) -> Library:
    words = {word: index for index, word in enumerate([*LETTERS, *more])}
    library = Library(models.BPE(words, [], **options))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return library


def byte_fallback(*more: str, **options: Any) -> Library:
    words = {word: index for index, word in enumerate([*BYTES, "▁", *more])}
    library = Library(models.BPE(words, [], byte_fallback=True, **options))
    library.normalizer = SENTENCE_PIECE
    return library


def test_it_is_the_longest_token() -> None:
    assert text_bound(byte_level()).most == 1
    assert text_bound(byte_level("Ġabc")).most == 4
    assert text_bound(byte_fallback("▁é")).most == 6  # a byte's token is spelled with six letters
    assert text_bound(byte_fallback("▁" * 5)).most == 15


def test_added_tokens_count() -> None:
    library = byte_level()
    library.add_tokens([AddedToken("<tool>", special=False)])
    assert text_bound(library).most == len("<tool>")
    library.add_special_tokens(["<|a special one|>"])
    assert text_bound(library).most == len("<|a special one|>")
    library = byte_fallback()
    library.add_tokens([AddedToken("  ", special=False, normalized=True)])
    assert text_bound(library).most == 6


def test_what_makes_a_text_shorter_counts() -> None:
    library = byte_level("Ġabc")
    library.normalizer = normalizers.Sequence([normalizers.Prepend("a"), normalizers.NFC()])
    assert text_bound(library).most == 4 * COMPOSING


def test_bytes_that_are_dropped_do_not_count() -> None:
    """Without an unknown token, the library leaves them out, and joins what stands beside them."""
    words = {letter: index for index, letter in enumerate([*LETTERS[1:], "abc"])}
    library = byte_level()
    library.model = models.BPE({**words, "ab": 300}, [("a", "b"), ("ab", "c")])
    bound = text_bound(library)
    assert (bound.most, bound.dropped) == (3, LETTERS[0].encode())
    assert bound.fewest_tokens(LETTERS[0] * 1000 + "abc" * 2) == 2
    library.normalizer = normalizers.NFC()
    assert text_bound(library).most == 0


def without(library: Library, **parts: Any) -> Library:
    for name, part in parts.items():
        setattr(library, name, part)
    return library


def eating() -> Library:
    library = byte_level()
    library.add_tokens([AddedToken("<tool>", special=False, rstrip=True)])
    return library


@pytest.mark.parametrize(
    "library",
    [
        without(byte_level(), normalizer=normalizers.NFKC()),
        without(byte_level(), normalizer=normalizers.Strip()),
        without(byte_level(), normalizer=normalizers.Lowercase()),
        without(byte_level(), normalizer=normalizers.Replace("aa", "a")),
        without(byte_level(), normalizer=normalizers.Replace(Regex(" +"), " ")),
        without(byte_fallback(), pre_tokenizer=pre_tokenizers.WhitespaceSplit()),
        without(byte_fallback(), pre_tokenizer=pre_tokenizers.Split(" ", "removed")),
        without(byte_level(), pre_tokenizer=None),
        Library(models.BPE({"a": 0}, [], byte_fallback=True)),
        Library(models.WordLevel({"a": 0, "?": 1}, unk_token="?")),
        Library(models.WordPiece({"a": 0, "?": 1}, unk_token="?")),
        Library(models.Unigram([("a", 0.0), ("?", 0.0)], unk_id=1)),
        byte_level(end_of_word_suffix="</w>"),
        byte_level(continuing_subword_prefix="##"),
        eating(),
    ],
)
def test_where_text_may_be_lost_there_is_none(library: Library) -> None:
    assert text_bound(library).most == 0


def test_nfc_leaves_more_than_it_is_said_to() -> None:
    """Of every character that it makes, the longest spelling of each part counts."""
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    longest: dict[str, int] = {}
    for character in every:
        first = unicodedata.normalize("NFD", character)[0]
        longest[first] = max(longest.get(first, 0), len(character.encode()))
    for character in every:
        if unicodedata.normalize("NFC", character) == character:
            parts = unicodedata.normalize("NFD", character)
            spelled = sum(longest[part] for part in parts)
            assert spelled < COMPOSING * len(character.encode()), hex(ord(character))


@pytest.fixture(scope="session", params=["smollm2", "gemma3"])
def real(request: pytest.FixtureRequest) -> tuple[str, Tokenizer]:
    directory = request.getfixturevalue(f"{request.param}_dir")
    return request.param, Tokenizer.from_directory(directory)


@given(text=st.text(max_size=200) | st.text(" \nab🦊", max_size=400))
def test_it_is_sound_for_the_real_tokenizers(real: tuple[str, Tokenizer], text: str) -> None:
    name, tokenizer = real
    assert tokenizer._bound.most == {"smollm2": 81, "gemma3": 93}[name]
    assert tokenizer.fewest_tokens(text) <= len(tokenizer.encode(text))


def test_a_run_of_blanks_comes_near_it(real: tuple[str, Tokenizer]) -> None:
    _, tokenizer = real
    text = " " * 1000
    assert 10 <= tokenizer.fewest_tokens(text) <= len(tokenizer.encode(text)) < 100
