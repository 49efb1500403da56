"""Streamed texts against the library's own decoding of all ids at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

from core_runtime.tokenizer.detokenizer import TokenBytes

TEXTS = [
    "The quick brown fox, 3.14 and 1,000; don't!",
    " leading, trailing ",
    "tabs\t\tand\n\n\nlines\r\n   deep   space\u00a0\u2003\u3000end",
    "½ ¼ ² Ⅷ ① ligature ﬁ",
    "e\u0301 n\u0303 combining, zero\u200bwidth\ufeff",
    "Ελληνικά Русский עברית العربية हिन्दी ไทย 한국어 日本語 简体中文 ქართული አማርኛ",
    "👍🏽 👩\u200d👩\u200d👧\u200d👦 🇨🇭 😀😀😀 \U0001d518\U0001d52b\U0001d526 𓀀 🫠",
    "really \ufffd the replacement \ufffd\ufffd character\ufffd",
    "control \x00\x01\x7f\x85 characters",
    "def f(x):\n    return {'a': [1, 2]}  # ok\n",
    "Ġ ▁ <0xF0> <s> </s> <bos> <|im_end|>",
    "\ue000\U000f0000 private, rare: 𠀀𪚥",
]


def streamed(library: Tokenizer, generated: Sequence[int], prompt: Sequence[int] = ()) -> str:
    stream = TokenBytes(library).stream(prompt)
    text = "".join(stream.add(token_id) for token_id in generated)
    return text + stream.finish()


def continuation(library: Tokenizer, generated: Sequence[int], prompt: Sequence[int]) -> str:
    """What the generated ids add to the text of the prompt."""
    before = library.decode(list(prompt)) if prompt else ""
    text = library.decode([*prompt, *generated])
    assert text.startswith(before)
    return text[len(before) :]


def fallback(*steps: decoders.Decoder) -> Tokenizer:
    """SentencePiece with byte fallback: ids 0 to 255 are the bytes, then `<s>` and some words."""
    words = ["▁Hello", "▁world", "▁", "▁▁", "<0xZZ>", "你"]
    tokens = [*(f"<0x{byte:02X}>" for byte in range(256)), "<s>", *words]
    library = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, []))
    head = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence([*head, *steps])
    library.add_special_tokens(["<s>"])
    return library


def ids(library: Tokenizer, *tokens: str) -> list[int]:
    found = [library.token_to_id(token) for token in tokens]
    assert None not in found
    return [token_id for token_id in found if token_id is not None]


@pytest.fixture
def tiny(checkpoint: Callable[[], Path]) -> Tokenizer:
    return Tokenizer.from_file(str(checkpoint() / "tokenizer.json"))


@pytest.fixture(scope="session")
def smollm2(smollm2_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(smollm2_dir / "tokenizer.json"))


@pytest.fixture(scope="session")
def gemma3(gemma3_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(gemma3_dir / "tokenizer.json"))


@pytest.fixture(scope="session", params=["smollm2", "gemma3"])
def real(request: pytest.FixtureRequest) -> tuple[Tokenizer, TokenBytes]:
    library: Tokenizer = request.getfixturevalue(request.param)
    return library, TokenBytes(library)


# ---------------------------------------------------------------- truth


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_comes_back_wherever_the_prompt_ends(
    real: tuple[Tokenizer, TokenBytes], text: str
) -> None:
    library, token_bytes = real
    encoded = library.encode(text).ids
    whole = library.decode(encoded)
    for cut in range(len(encoded) + 1):
        before = library.decode(encoded[:cut])
        if before.endswith("\ufffd") or not whole.startswith(before):
            continue  # inside a character
        stream = token_bytes.stream(encoded[:cut])
        got = "".join(map(stream.add, encoded[cut:]))
        assert got == whole[len(before) :]
        assert (stream.incomplete, stream.finish()) == (False, "")


@pytest.mark.parametrize("text", TEXTS)
def test_a_prompt_may_end_inside_any_character(
    real: tuple[Tokenizer, TokenBytes], text: str
) -> None:
    library, token_bytes = real
    encoded = library.encode(text).ids
    whole = token_bytes.stream()
    for cut in range(len(encoded)):
        rest = token_bytes.stream(encoded[:cut])
        assert rest.incomplete == whole.incomplete
        parts = [rest.add(token_id) for token_id in encoded[cut:]]
        assert parts[0] == whole.add(encoded[cut])


@settings(max_examples=60)
@given(text=st.text(max_size=30))
def test_any_text_comes_back(real: tuple[Tokenizer, TokenBytes], text: str) -> None:
    library, token_bytes = real
    stream = token_bytes.stream()
    encoded = library.encode(text).ids
    assert "".join(map(stream.add, encoded)) == library.decode(encoded)


@settings(max_examples=100)
@given(data=st.data())
def test_any_ids_of_a_byte_level_vocabulary_decode_as_the_library_does(
    smollm2: Tokenizer, data: st.DataObject
) -> None:
    # The first few hundred are the single bytes.
    one = st.integers(0, 300) | st.integers(0, smollm2.get_vocab_size() - 1)
    generated = data.draw(st.lists(one, max_size=12))
    assert streamed(smollm2, generated) == smollm2.decode(generated)


def test_the_tiny_vocabulary_decodes_as_the_library_does(tiny: Tokenizer) -> None:
    everything = list(range(tiny.get_vocab_size()))
    assert streamed(tiny, everything) == tiny.decode(everything) != ""
    assert streamed(tiny, ids(tiny, "Ġab", "<s>", "Ġno"), ids(tiny, "no")) == " ab no"


def test_added_tokens_are_text_unless_they_are_special(tiny: Tokenizer) -> None:
    tiny.add_tokens([AddedToken("<a tool>"), AddedToken("<naïve>")])
    generated = ids(tiny, "<a tool>", "ab", "</s>", "<naïve>")
    assert streamed(tiny, generated) == tiny.decode(generated)
    assert streamed(tiny, generated).startswith("<a tool>ab<na")


# ---------------------------------------------------------------- spaces


def test_the_space_before_a_word_is_kept_after_a_prompt(
    real: tuple[Tokenizer, TokenBytes],
) -> None:
    library, _ = real
    world = library.encode(" world", add_special_tokens=False).ids
    assert len(world) == 1
    assert streamed(library, world, library.encode("Hello").ids) == " world"


@pytest.mark.parametrize("prompt", [(), ("<s>",), ("<s>", "▁Hello"), ("▁Hello", "<s>", "<s>")])
@pytest.mark.parametrize("generated", [("▁world",), ("▁▁", "▁world"), ("<s>", "▁world", "▁")])
def test_a_decoder_that_strips_the_first_space_does_so_once(
    prompt: tuple[str, ...], generated: tuple[str, ...]
) -> None:
    library = fallback(decoders.Strip(" ", 1, 0))
    before, after = ids(library, *prompt), ids(library, *generated)
    assert streamed(library, after, before) == continuation(library, after, before)


def test_a_vocabulary_without_a_decoder_has_spaces_between_tokens() -> None:
    library = fallback()
    library.decoder = None
    generated = ids(library, "你", "▁world", "<0x41>")
    assert streamed(library, generated) == library.decode(generated) == "你 ▁world <0x41>"
    assert streamed(library, generated[1:], generated[:1]) == " ▁world <0x41>"


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("text", ["é", "½", "你", "😀", "a😀é", "\ufffd"])
def test_byte_tokens_of_gemma_become_characters(gemma3: Tokenizer, text: str) -> None:
    generated = ids(gemma3, *(f"<0x{byte:02X}>" for byte in text.encode()))
    stream = TokenBytes(gemma3).stream()
    texts = [stream.add(token_id) for token_id in generated]
    assert [part for part in texts if part] == list(text)
    assert "".join(texts) == gemma3.decode(generated)


@pytest.mark.parametrize(
    "data", [b"\xf0", b"\x80", b"\xf0\x9f\x98", b"\xe4\xbd", b"\xed\xa0\x80", b"\xff\xfe", b"\xc3"]
)
@pytest.mark.parametrize("after", ["", "▁world"])
def test_broken_characters_look_as_in_the_library(
    gemma3: Tokenizer, data: bytes, after: str
) -> None:
    generated = ids(gemma3, *(f"<0x{byte:02X}>" for byte in data), *([after] if after else []))
    assert streamed(gemma3, generated) == gemma3.decode(generated) != ""


def test_a_character_that_is_cut_off_looks_as_in_the_library(smollm2: Tokenizer) -> None:
    generated = smollm2.encode("😀").ids[:-1]
    assert streamed(smollm2, generated) == smollm2.decode(generated) == "\ufffd"
    generated += smollm2.encode("a").ids
    assert streamed(smollm2, generated) == smollm2.decode(generated) == "\ufffda"


def test_valid_characters_in_a_broken_run_of_bytes_stay() -> None:
    library = fallback()
    assert streamed(library, [*"é".encode(), 0x80, *"你".encode()]) == "é\ufffd你"


def test_a_token_that_only_looks_like_a_byte_is_text(smollm2: Tokenizer) -> None:
    library = fallback()
    assert streamed(library, ids(library, "<0xZZ>", "你")) == "<0xZZ>你"
    spelled = smollm2.encode("<0x41>").ids
    assert streamed(smollm2, spelled) == "<0x41>"


def test_text_appears_with_the_token_that_completes_it() -> None:
    library = fallback()
    stream = TokenBytes(library).stream()
    steps = [(0xF0, "", True), (0x9F, "", True), (0x98, "", True), (0x80, "😀", False)]
    steps += [(0xC3, "", True), (0xC3, "\ufffd", True), (ord("a"), "\ufffda", False)]
    for token_id, text, incomplete in steps:
        assert (stream.add(token_id), stream.incomplete) == (text, incomplete)
    assert (stream.add(0xE4), stream.finish(), stream.incomplete) == ("", "\ufffd", False)
    assert stream.finish() == ""


def test_a_prompt_that_ends_inside_a_character_is_continued() -> None:
    face = "😀".encode()
    assert streamed(fallback(), face[3:], [256, *face[:3]]) == "😀"
    assert streamed(fallback(), face[1:], [*"你".encode(), face[0], *[256] * 9]) == "😀"


# ---------------------------------------------------------------- ids that are none


@pytest.mark.parametrize("token_id", [-1, 10**6, 2**32 - 1, 2**32, 10**30])
def test_an_unknown_id_has_no_text_and_is_no_error(
    real: tuple[Tokenizer, TokenBytes], token_id: int
) -> None:
    library, token_bytes = real
    stream = token_bytes.stream([token_id])
    assert (stream.add(token_id), stream.finish()) == ("", "")
    assert streamed(library, [token_id, *library.encode("yes").ids], [token_id]) == "yes"


def test_special_tokens_are_skipped(real: tuple[Tokenizer, TokenBytes]) -> None:
    library, token_bytes = real
    added = library.get_added_tokens_decoder().items()
    special = [token_id for token_id, token in added if token.special]
    stream = token_bytes.stream()
    assert len(special) > 2
    assert {stream.add(token_id) for token_id in special} == {""}
