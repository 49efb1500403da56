"""Texts that are cut have the tokens of the whole, on real, published and tiny tokenizers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from core_runtime.text.label_tokens import LabelTokens
from core_runtime.tokenizer.files import TokenizerFiles
from core_runtime.tokenizer.model_tokenizer import Tokenizer
from core_runtime.tokenizer.word_cuts import can_cut, common_ends, last_cut
from runtime.tests.published.publications import PUBLICATIONS, Publication
from runtime.tests.published.shapes import shaped

PIECES = ["This ", "news", " is", " about", ".", ",", "  ", "\n", "'s", "1", " 23", "é", "▁", "\t"]
PIECES += ["> </", "<table>", "don't", " a", "A", "\u0301", "\r\n", " Ω", "!? ", "🦊", " ", "<s>"]
some_text = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)
SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.differing_executors]
)


SHAPES = {one.shape: one for one in PUBLICATIONS}


@pytest.fixture(scope="module", params=["smollm2_dir", "gemma3_dir", *SHAPES])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param in SHAPES:
        return published(SHAPES[request.param])
    directory: Path = request.getfixturevalue(request.param)
    return Tokenizer.from_directory(directory)


def published(publication: Publication, **changes: object) -> Tokenizer:
    """Its tokenizer; keywords change parts of its tokenizer.json."""
    content = {**shaped(publication.shape, publication.vocabulary()), **changes}
    return of(Library.from_str(json.dumps(content)))


def of(library: Library) -> Tokenizer:
    return Tokenizer(TokenizerFiles(library, "", {}, {}))


def encodable(text: str) -> str:
    return text.encode(errors="ignore").decode()


def test_they_can_be_cut(tokenizer: Tokenizer) -> None:
    assert can_cut(tokenizer.library)
    text = "What this is: a text. It ends here"
    assert text[tokenizer.last_cut(text) :].strip() == "here"
    assert tokenizer.last_cut("word") == tokenizer.last_cut(" word") == tokenizer.last_cut("") == 0


@SETTINGS
@given(some_text, some_text, some_text)
def test_the_end_has_the_tokens_that_it_has_alone(
    tokenizer: Tokenizer, start: str, end: str, after: str
) -> None:
    text = encodable(f"{start} {end}")
    place = tokenizer.last_cut(text)
    whole = text + encodable(after)  # whatever follows
    if place:
        own = tokenizer.encode(whole[place:])[len(tokenizer.encode("")) :]
        assert tokenizer.encode(whole)[-len(own) :] == own


@SETTINGS
@given(some_text, some_text, some_text)
def test_labels_are_those_of_each_prompt_by_itself(
    tokenizer: Tokenizer, start: str, end: str, prefix: str
) -> None:
    """Prompts that end alike share what was learned of their end."""
    prompts = [encodable(f"{start} {number} is {end}") for number in ("one", "two", "two")]
    labels = ["science", "sports", "it", "a"]
    ids = [tokenizer.encode(prompt) for prompt in prompts]
    together = LabelTokens(tokenizer, labels, encodable(prefix)).after(prompts, ids)
    alone = [
        next(LabelTokens(tokenizer, labels, encodable(prefix)).after([prompt], [own]))
        for prompt, own in zip(prompts, ids, strict=True)
    ]
    assert list(together) == alone


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


def test_labels_are_tokenised_once_for_prompts_that_end_alike(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row costs as much with a published tokenizer as with a converted one."""
    prompts = [f"Goal number {i} was made on a {'long ' * i}day. It is about" for i in range(40)]
    ids = tokenizer.encode_batch(prompts)
    labels = LabelTokens(tokenizer, ["science", "sports"], " ")
    read: list[str] = []
    real = tokenizer._batch

    def noted(some: list[str], *, add_special: bool) -> list[list[int]]:
        read.extend(some)
        return real(some, add_special=add_special)

    monkeypatch.setattr(tokenizer, "_batch", noted)
    questions = list(labels.after(prompts, ids))
    assert len({id(question.trie) for question in questions}) == 1
    assert len(read) <= 3  # the end, and the end with each label


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
    unknown.pre_tokenizer = pre_tokenizers.Whitespace()
    added = byte_pairs(("a", "b"))
    added.add_tokens([AddedToken("a b", normalized=False)])
    stripping = byte_pairs(("a", "b"))
    stripping.add_tokens([AddedToken("<x>", normalized=False, lstrip=True)])
    words = Library(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    for library in (prepending, unknown, added, stripping, words):
        assert not can_cut(library)


@pytest.mark.parametrize("normalizer", [None, normalizers.Replace(" ", "▁")])
@pytest.mark.parametrize("scheme", ["first", "always", "never"])
@pytest.mark.parametrize("split", [True, False])
def test_every_metaspace_can_be_cut(
    normalizer: normalizers.Normalizer | None, scheme: str, split: bool
) -> None:
    library = byte_pairs(("▁", "a"), ("a", "b"))
    library.normalizer = normalizer
    library.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme, split)
    tokenizer = of(library)
    assert can_cut(library)
    texts = [f"{lead}ab ad ab de ab ad. ab {word} ab ad ab" for lead in ("", " ") for word in "abc"]
    for some in (texts, texts[:3], texts[3:]):
        assert tokenizer.encode_batch(some) == [tokenizer.encode(text) for text in some]


def test_a_search_for_spaces_that_the_normalizer_has_replaced_is_left_out() -> None:
    """Gemma's tokenizer.json has it; to look for them takes a fifth of the time of all else."""
    [gemma] = [one for one in PUBLICATIONS if one.name == "gemma-2-2b-it"]
    assert published(gemma).library.pre_tokenizer is None
    split = pre_tokenizers.Split(" ", "isolated")
    without = byte_pairs()
    without.normalizer = normalizers.NFC()
    other = byte_pairs()
    other.pre_tokenizer = pre_tokenizers.Split("a", "isolated")
    several = byte_pairs()
    several.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.Digits()])
    inverted = byte_pairs()
    inverted.pre_tokenizer = pre_tokenizers.Split(" ", "isolated", invert=True)
    without.pre_tokenizer = split
    for library in (without, other, several, inverted):
        assert of(library).library.pre_tokenizer is not None


def test_a_tiny_tokenizer(checkpoint: Callable[..., Path]) -> None:
    tiny = Tokenizer.from_directory(checkpoint())
    texts = [f"ab no abc ab no abc ab no {word} abc no ab" for word in ("ab", "c", "no no")]
    assert tiny.encode_batch(texts) == [tiny.encode(text) for text in texts]
