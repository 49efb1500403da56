"""Token ids against llama.cpp's stored ones, and what a user's text can and cannot spell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import core
from core.errors import ChatTemplateError, InvalidOptionError, ModelClosedError, RequestError
from core.kit.chat import RenderedPrompt
from core.types import Message
from core_llama_cpp.model import LlamaModel
from core_llama_cpp.text.tokenizer import Tokenizer

_TOKENS = Path(__file__).parents[4] / "runtime" / "tests" / "llama_cpp_tokens" / "tokens.json"
_REFERENCE = json.loads(_TOKENS.read_bytes())
_MARKER = "\ufdd0"
_MARKS = ["<end_of_turn>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|endoftext|>"]
_WORDS = ["<s>", "</s>", *map(chr, range(33, 127)), "Ġ", "Ġa", "Ġb", "ab", "Ġab"]
_MARKS += ["<｜end▁of▁sentence｜>"]  # noqa: RUF001 - so it is spelled


@pytest.fixture(scope="module")
def smollm2(smollm2_model: LlamaModel) -> Tokenizer:
    return smollm2_model._loaded.tokenizer


@pytest.fixture(scope="module")
def gemma3(gemma3_model: LlamaModel) -> Tokenizer:
    return gemma3_model._loaded.tokenizer


@pytest.fixture(params=["smollm2", "gemma3"])
def real(request: pytest.FixtureRequest) -> tuple[str, Tokenizer]:
    return request.param, request.getfixturevalue(request.param)


def test_ids_are_those_of_llama_cpp(real: tuple[str, Tokenizer]) -> None:
    name, tokenizer = real
    expected = _REFERENCE[name]
    assert len(_REFERENCE["plain"]) > 300
    assert tokenizer.encode_batch(_REFERENCE["plain"]) == expected["plain"]
    rendered = [RenderedPrompt(text, _MARKER) for text in _REFERENCE["with_special"]]
    assert tokenizer.encode_batch(rendered) == expected["with_special"]


def test_facts_of_the_real_models(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    assert (smollm2.vocab_size, smollm2.vocabulary.bos, smollm2.encode("")) == (49152, None, [])
    assert (gemma3.vocab_size, gemma3.vocabulary.bos, gemma3.encode("")) == (262144, 2, [2])
    assert "<|im_end|>" in smollm2.special
    assert "<h1>" not in gemma3.special  # a token of its own, which text may spell
    assert {0, 2} <= smollm2.stop_ids  # <|endoftext|>, <|im_end|>
    assert {1, 106} <= gemma3.stop_ids  # <eos>, <end_of_turn>


@settings(max_examples=50)
@given(data=st.data())
def test_text_cannot_spell_special_tokens(
    smollm2: Tokenizer, gemma3: Tokenizer, data: st.DataObject
) -> None:
    tokenizer = data.draw(st.sampled_from([smollm2, gemma3]))
    special = [text for text in tokenizer.special if not text.startswith("<unused")]
    parts = data.draw(st.lists(st.sampled_from(special) | st.text(max_size=3), max_size=6))
    ids = tokenizer.encode("".join(parts))
    added = tokenizer.encode("")  # BOS, where the model has it
    assert ids[: len(added)] == added
    assert not any(tokenizer.token_text(id) in special for id in ids[len(added) :])


def test_a_message_cannot_spell_special_tokens(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    for tokenizer, mark in ((smollm2, "<|im_end|>"), (gemma3, "<end_of_turn>")):
        plain = tokenizer.encode(tokenizer.render_chat([Message("user", "x")]))
        rendered = tokenizer.render_chat([Message("user", f"x{mark}y")])
        spelled = tokenizer.encode(rendered)
        token = tokenizer._ids[mark]
        assert f"x{mark}y" in rendered
        assert spelled.count(token) == plain.count(token) > 0


def test_a_rendered_prompt_gets_no_second_bos(gemma3: Tokenizer) -> None:
    assert gemma3.encode(gemma3.render_chat([Message("user", "hi")])).count(2) == 1
    assert 2 not in gemma3.encode(RenderedPrompt("hi", _MARKER))


def test_a_chat_needs_a_template(tiny_gguf: Callable[..., Path]) -> None:
    with core.load_model(tiny_gguf(), backend="llama_cpp") as model:
        tokenizing = cast("core.Tokenizing", model)
        with pytest.raises(ChatTemplateError, match="no chat template"):
            tokenizing.render_chat([Message("user", "a")])
    template = {"tokenizer.chat_template": "{{ messages[0].content + eos_token }}"}
    path = tiny_gguf("templated", change=template)
    with core.load_model(path, backend="llama_cpp") as model:
        tokenizing = cast("core.Tokenizing", model)
        assert tokenizing.render_chat([Message("user", "a")]) == "a</s>"
        assert tokenizing.encode(tokenizing.render_chat([Message("user", "a</s>")]))[-1] == 1


def test_a_continuation_is_plain_text(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    prompt = smollm2.render_chat([Message("user", "hi")])
    ids = smollm2.encode(prompt)
    word, fake = smollm2.encode_continued(prompt, ["sports", "<|im_end|>"])
    assert word == [*ids, *smollm2.encode("sports")]
    assert fake == [*ids, *smollm2.encode("<|im_end|>")]
    assert gemma3.encode_continued("a b", [" c", "d"]) == gemma3.encode_batch(["a b c", "a bd"])


# Six control characters and the planes above 3 need bytes that SmolLM2's vocabulary has not.
_SMOLLM2_ALPHABET = st.characters(
    max_codepoint=0x3FFFF, exclude_categories=["Cs"], exclude_characters="\4\6\x13\x14\x16\x1d"
)


@settings(max_examples=60)
@given(st.text(_SMOLLM2_ALPHABET), st.text(st.characters(exclude_characters="▁", codec="utf-8")))
def test_decoding_gives_the_text_back(
    smollm2: Tokenizer, gemma3: Tokenizer, one: str, other: str
) -> None:
    assert smollm2.decode(smollm2.encode(one)) == one
    assert gemma3.decode(gemma3.encode(other)) == other


def test_decode_leaves_special_and_unknown_ids_out(gemma3: Tokenizer) -> None:
    hello = gemma3.encode("hello")[1:]
    assert gemma3.decode([2, *hello, 106, 262144, 10**12]) == "hello"
    with pytest.raises(InvalidOptionError, match="ids"):
        gemma3.decode([-1])


def test_a_single_token_keeps_its_space_and_its_name(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    for tokenizer in (smollm2, gemma3):
        assert tokenizer.token_text(tokenizer.encode(" finance")[-1]) == " finance"
    assert smollm2.token_text(2) == "<|im_end|>"
    assert smollm2.token_text(10**7) == ""


def test_half_a_character_waits_for_the_rest(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    for tokenizer in (smollm2, gemma3):
        ids = tokenizer.encode("𐍈")[-4:]
        assert [tokenizer.token_text(id) for id in ids[1:]] == ["\ufffd"] * 3
        stream = tokenizer.detokenizer(ids[:2])
        assert (stream.incomplete, stream.add(ids[2]), stream.add(ids[3])) == (True, "", "𐍈")
        stream = tokenizer.detokenizer(())
        assert (stream.add(ids[0]), stream.finish()) == ("", "\ufffd")


def test_the_space_that_a_tokenizer_adds_is_taken_off_again(
    smollm2: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a SentencePiece vocabulary with add_space_prefix has it.
    monkeypatch.setattr(smollm2.vocabulary, "_strips_space", True)
    stream = smollm2.detokenizer(())
    space, plain = smollm2.encode(" a")[-1], smollm2.encode("a")[-1]
    assert [stream.add(space), stream.add(space), stream.add(plain)] == ["a", " a", "a"]


@pytest.mark.parametrize("mark", _MARKS)
def test_a_familys_end_mark_ends_a_generation(tiny_gguf: Callable[..., Path], mark: str) -> None:
    words = [*_WORDS, mark]
    types = [3, 3, *[1] * (len(_WORDS) - 2), 3]
    change = {"tokenizer.ggml.tokens": words, "tokenizer.ggml.token_type": types}
    with core.load_model(tiny_gguf(change=change, words=words), backend="llama_cpp") as model:
        assert cast("LlamaModel", model)._loaded.tokenizer.stop_ids == {1, len(_WORDS)}


def test_lone_surrogates_are_refused(gemma3: Tokenizer) -> None:
    with pytest.raises(RequestError, match="not valid Unicode"):
        gemma3.encode("a\ud800")


@pytest.mark.parametrize("value", [5, b"ab", None, 1.5, ["ab"]])
def test_only_strings_have_tokens(tiny_model: LlamaModel, value: Any) -> None:
    with pytest.raises(TypeError, match="takes a string, not a"):
        tiny_model.encode(value)


def test_eight_threads_get_what_one_gets(smollm2: Tokenizer) -> None:
    texts: list[str] = _REFERENCE["plain"]
    expected: list[list[int]] = _REFERENCE["smollm2"]["plain"]
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: smollm2.encode_batch(texts) == expected, range(8)))


def test_nobody_asks_a_model_that_was_freed(tiny_gguf: Callable[..., Path]) -> None:
    model = cast("LlamaModel", core.load_model(tiny_gguf(), backend="llama_cpp"))
    tokenizer = model._loaded.tokenizer
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"
    model.close()
    for use in _uses(tokenizer):
        with pytest.raises(ModelClosedError):
            use()


def _uses(tokenizer: Tokenizer) -> Iterator[Callable[[], Any]]:
    yield lambda: tokenizer.encode("ab")
    yield lambda: tokenizer.vocabulary.text("bos")
    yield lambda: tokenizer.decode([50])  # a token that was not asked for before
