"""Texts that are cut have the tokens of the whole, on real and on tiny tokenizers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from core_mlx_native.text.tokenizer import Tokenizer
from core_mlx_native.text.word_cuts import can_cut, common_ends, last_cut

PIECES = ["This ", "news", " is", " about", ".", ",", "  ", "\n", "'s", "1", " 23", "é", "▁", "\t"]
PIECES += ["> </", "<table>", "don't", " a", "A", "\u0301", "\r\n", " Ω", "!? ", "🦊", " ", "<s>"]
some_text = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)
SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.differing_executors]
)


@pytest.fixture(scope="module", params=["smollm2_dir", "gemma3_dir"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    directory: Path = request.getfixturevalue(request.param)
    return Tokenizer.from_directory(directory)


def encodable(text: str) -> str:
    return text.encode(errors="ignore").decode()


def test_the_real_ones_can_be_cut(tokenizer: Tokenizer) -> None:
    assert can_cut(tokenizer.library)
    text = "What this is: a text. It ends here"
    assert tokenizer.last_cut(text) == len("What this is: a text. It ends")
    assert tokenizer.last_cut("word") == tokenizer.last_cut(" word") == tokenizer.last_cut("") == 0


@SETTINGS
@given(some_text, some_text, some_text)
def test_both_parts_have_the_tokens_of_the_whole(
    tokenizer: Tokenizer, start: str, end: str, behind: str
) -> None:
    text = encodable(f"{start} {end}")
    place = tokenizer.last_cut(text)
    whole = text + encodable(behind)  # whatever follows
    front, back = tokenizer._pieces([whole[:place], whole[place:]])
    assert front + back == tokenizer._pieces([whole])[0]


@SETTINGS
@given(st.lists(some_text, min_size=1, max_size=5), some_text, some_text)
def test_texts_that_begin_and_end_alike_have_their_own_tokens(
    tokenizer: Tokenizer, middles: list[str], start: str, end: str
) -> None:
    head = "Say what the following news is about, please. "
    texts = [encodable(head + start + middle + end + " This news is about") for middle in middles]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


def test_what_is_alike_is_tokenised_once(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"Say what the news is about. {i} goals were made. It is about" for i in range(20)]
    wanted = [tokenizer.encode(text) for text in texts]
    read: list[str] = []
    real = tokenizer._batch

    def noted(some: list[str], *, add_special: bool) -> list[list[int]]:
        read.extend(some)
        return real(some, add_special=add_special)

    monkeypatch.setattr(tokenizer, "_batch", noted)
    assert tokenizer.encode_batch(texts) == wanted
    assert sum(map(len, read)) < 0.6 * sum(map(len, texts))


@given(st.lists(some_text, min_size=1, max_size=6), some_text, some_text)
@settings(deadline=None)
def test_what_texts_have_in_common(middles: list[str], start: str, end: str) -> None:
    texts = [start + middle + end for middle in middles]
    begin, finish = common_ends(texts)
    for text in texts:
        assert begin + finish <= len(text)
        assert text[:begin] == texts[0][:begin]
        assert text[len(text) - finish :] == texts[0][len(texts[0]) - finish :]
        assert begin == 0 or last_cut(text[: begin + 2]) == begin


def byte_pairs(*merges: tuple[str, str]) -> Library:
    """A tokenizer of letters and these, with the space as Gemma has it."""
    letters = "abcdefgh▁.<>"
    tokens = [*letters, *("".join(merge) for merge in merges)]
    library = Library(models.BPE({token: i for i, token in enumerate(tokens)}, list(merges)))
    library.normalizer = normalizers.Replace(" ", "▁")
    return library


def test_no_cut_where_a_part_of_the_tokenizer_looks_across() -> None:
    assert can_cut(byte_pairs(("▁", "a"), ("a", "b")))
    assert not can_cut(byte_pairs(("a", "▁")))  # a token lies across

    prepending = byte_pairs(("a", "b"))
    prepending.normalizer = normalizers.Prepend("▁")
    unknown = byte_pairs(("a", "b"))
    unknown.pre_tokenizer = pre_tokenizers.Metaspace()
    added = byte_pairs(("a", "b"))
    added.add_tokens([AddedToken("a b", normalized=False)])
    stripping = byte_pairs(("a", "b"))
    stripping.add_tokens([AddedToken("<x>", normalized=False, lstrip=True)])
    words = Library(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    for library in (prepending, unknown, added, stripping, words):
        assert not can_cut(library)


def test_a_tiny_tokenizer(checkpoint: Callable[..., Path]) -> None:
    tiny = Tokenizer.from_directory(checkpoint())
    texts = [f"ab no abc ab no abc ab no {word} abc no ab" for word in ("ab", "c", "no no")]
    assert tiny.encode_batch(texts) == [tiny.encode(text) for text in texts]
