"""Token ids against llama.cpp's, and what a user's text can and cannot spell."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Library

from core.errors import InvalidOptionError, RequestError, TokenizerError
from core.kit.chat import RenderedPrompt
from core.types import Message
from core_runtime.tokenizer.model_tokenizer import Tokenizer

_REFERENCE = json.loads(
    (Path(__file__).parents[1] / "llama_cpp_tokens" / "tokens.json").read_bytes()
)
_MARKER = "\ufdd0"

_AS_NOBODY = """
import os, sys
from pathlib import Path
from core.errors import ModelAccessError
from core_runtime.tokenizer.model_tokenizer import Tokenizer
path = Path(sys.argv[1])
Tokenizer.from_directory(path.parent)
path.chmod(0)
if os.getuid() == 0:
    os.setuid(65534)
try:
    Tokenizer.from_directory(path.parent)
except ModelAccessError as error:
    print(error)
"""


@pytest.fixture(scope="session")
def smollm2(smollm2_dir: Path) -> Tokenizer:
    return Tokenizer.from_directory(smollm2_dir)


@pytest.fixture(scope="session")
def gemma3(gemma3_dir: Path) -> Tokenizer:
    return Tokenizer.from_directory(gemma3_dir)


@pytest.fixture(scope="session", params=["smollm2", "gemma3"])
def real(request: pytest.FixtureRequest) -> tuple[str, Tokenizer]:
    return request.param, request.getfixturevalue(request.param)


def tiny_directory(directory: Path, **tokenizer_config: Any) -> Path:
    """A byte-level tokenizer over single bytes, `<s>` and `</s>` special, `<tool>` not."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Library(models.BPE({letter: index for index, letter in enumerate(letters)}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(["<s>", "</s>"])
    library.add_tokens([AddedToken("<tool>", special=False, normalized=False)])
    library.save(str(directory / "tokenizer.json"))
    content = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, **tokenizer_config}
    (directory / "tokenizer_config.json").write_text(json.dumps(content))
    return directory


# ---------------------------------------------------------------- truth


def test_ids_are_those_of_llama_cpp(real: tuple[str, Tokenizer]) -> None:
    name, tokenizer = real
    assert len(_REFERENCE["plain"]) > 300
    pairs = zip(_REFERENCE["plain"], _REFERENCE[name]["plain"], strict=True)
    assert [text for text, ids in pairs if tokenizer.encode(text) != ids] == []


def test_special_tokens_of_a_template_are_those_of_llama_cpp(real: tuple[str, Tokenizer]) -> None:
    name, tokenizer = real
    for text, ids in zip(_REFERENCE["with_special"], _REFERENCE[name]["with_special"], strict=True):
        assert tokenizer.encode(RenderedPrompt(text, _MARKER)) == ids, text


def test_batches_give_the_same_ids(real: tuple[str, Tokenizer]) -> None:
    name, tokenizer = real
    mixed = [*_REFERENCE["plain"], *(RenderedPrompt(t, _MARKER) for t in _REFERENCE["plain"][:50])]
    assert tokenizer.encode_batch(mixed) == [tokenizer.encode(text) for text in mixed]
    assert tokenizer.encode_batch(_REFERENCE["plain"]) == _REFERENCE[name]["plain"]
    assert tokenizer.encode_batch([]) == []


# ---------------------------------------------------------------- special tokens


def test_facts_of_the_real_models(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    assert smollm2.vocab_size == 49152
    assert gemma3.vocab_size == 262144
    assert smollm2.encode("") == []
    assert gemma3.encode("") == [2]
    assert "<|im_end|>" in smollm2.special
    assert "<h1>" not in gemma3.special  # a token of its own, which text may spell


@settings(deadline=None)
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


@settings(deadline=None)
@given(data=st.data())
def test_a_message_cannot_spell_special_tokens(
    smollm2: Tokenizer, gemma3: Tokenizer, data: st.DataObject
) -> None:
    tokenizer = data.draw(st.sampled_from([smollm2, gemma3]))
    special = [text for text in tokenizer.special if not text.startswith("<unused")]
    parts = data.draw(st.lists(st.sampled_from(special) | st.text("<|>_imet ", max_size=4)))
    content = "x" + "".join(parts)

    def written(text: str) -> list[str]:
        ids = tokenizer.encode(tokenizer.render_chat([Message("user", text)]))
        return [tokenizer.token_text(id) for id in ids if tokenizer.token_text(id) in special]

    assert written(content) == written("x")
    rendered = tokenizer.render_chat([Message("user", content)])
    assert content.strip() in rendered  # and is otherwise as it was


def test_a_rendered_prompt_gets_no_second_bos(gemma3: Tokenizer) -> None:
    ids = gemma3.encode(gemma3.render_chat([Message("user", "hi")]))
    assert ids.count(2) == 1
    assert gemma3.encode(RenderedPrompt("hi", _MARKER))[0] != 2


# ---------------------------------------------------------------- continuations


@settings(deadline=None)
@given(
    prompt=st.text(max_size=12),
    tails=st.lists(st.text(max_size=6) | st.just("<|im_end|>"), max_size=3),
)
def test_continued_is_the_whole_text_encoded(
    gemma3: Tokenizer, prompt: str, tails: list[str]
) -> None:
    expected = [gemma3.encode(prompt + tail) for tail in tails]
    assert gemma3.encode_continued(prompt, tails) == expected


def test_a_continuation_of_a_chat_is_plain_text(smollm2: Tokenizer) -> None:
    prompt = smollm2.render_chat([Message("user", "hi")])
    ids = smollm2.encode(prompt)
    word, fake = smollm2.encode_continued(prompt, ["sports", "<|im_end|>"])
    assert word == [*ids, *smollm2.encode("sports")]
    assert fake == [*ids, *smollm2.encode("<|im_end|>")]
    assert 2 not in fake[len(ids) :]


# ---------------------------------------------------------------- and back


# Six control characters and the planes above 3 need bytes that SmolLM2's vocabulary has not.
_SMOLLM2_ALPHABET = st.characters(
    max_codepoint=0x3FFFF, exclude_categories=["Cs"], exclude_characters="\4\6\x13\x14\x16\x1d"
)


@settings(deadline=None)
@given(st.text(_SMOLLM2_ALPHABET))
def test_decoding_gives_the_text_back(smollm2: Tokenizer, text: str) -> None:
    assert smollm2.decode(smollm2.encode(text)) == text


@settings(deadline=None)
@given(st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"])))
def test_decoding_gives_the_text_back_with_bytes(gemma3: Tokenizer, text: str) -> None:
    assert gemma3.decode(gemma3.encode(text)) == text


def test_decode_leaves_special_and_unknown_ids_out(gemma3: Tokenizer) -> None:
    hello = gemma3.encode("hello")[1:]
    assert gemma3.decode([2, *hello, 106, 262144, 10**12]) == "hello"
    with pytest.raises(InvalidOptionError, match="ids"):
        gemma3.decode([-1])


def test_a_single_token_keeps_its_space_and_its_name(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    for tokenizer in (smollm2, gemma3):
        ids = tokenizer.encode(" finance")
        assert tokenizer.token_text(ids[-1]) == " finance"
    assert smollm2.token_text(2) == "<|im_end|>"
    assert smollm2.token_text(10**7) == ""


def test_a_single_token_keeps_its_space_where_the_text_would_lose_it(tmp_path: Path) -> None:
    library = Library(models.BPE({"▁a": 0, "b": 1}, []))
    steps = [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    library.decoder = decoders.Sequence(steps)  # as Llama 2 has it
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert (tokenizer.decode([0, 0]), tokenizer.token_text(0)) == ("a a", " a")


def test_half_a_character_is_shown_as_such(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    for tokenizer in (smollm2, gemma3):
        ids = tokenizer.encode("𐍈")[-4:]
        assert [tokenizer.token_text(id) for id in ids[1:]] == ["\ufffd"] * len(ids[1:])
        assert tokenizer.decode(ids) == "𐍈"


# ---------------------------------------------------------------- threads


def test_eight_threads_get_what_one_gets(smollm2: Tokenizer) -> None:
    texts: list[str] = _REFERENCE["plain"]
    expected: list[list[int]] = _REFERENCE["smollm2"]["plain"]
    chats = [[Message("user", text)] for text in texts]
    prompts = [smollm2.render_chat(chat) for chat in chats]

    def work(number: int) -> bool:
        if number % 2:
            return smollm2.encode_batch(texts) == expected
        rendered = [smollm2.render_chat(chat) for chat in chats]
        return rendered == prompts and [smollm2.encode(text) for text in texts] == expected

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


# ---------------------------------------------------------------- model directories


def test_files_of_a_model_directory(tmp_path: Path) -> None:
    directory = tiny_directory(tmp_path)
    (directory / "config.json").write_text('{"model_type": "llama"}')
    tokenizer = Tokenizer.from_directory(directory)
    assert tokenizer.special == ("<s>", "</s>")
    assert tokenizer.library.token_to_id("<s>") == 256
    assert tokenizer.vocab_size == 259
    assert tokenizer.encode("<tool>") == [258]
    assert 256 not in tokenizer.encode("<s>")


def test_truncation_and_padding_of_the_file_are_not_applied(tmp_path: Path) -> None:
    library = Library.from_file(str(tiny_directory(tmp_path) / "tokenizer.json"))
    library.enable_truncation(4)
    library.enable_padding(length=9)
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_directory(tmp_path)
    assert [len(ids) for ids in tokenizer.encode_batch(["a", "abcdefgh"])] == [1, 8]


def test_lone_surrogates_are_an_error_of_the_prompt(smollm2: Tokenizer) -> None:
    for encode in (smollm2.encode, lambda text: smollm2.encode_batch(["good", text])):
        with pytest.raises(RequestError, match="not valid Unicode"):
            encode("half \ud83d a pair")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        b'{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}}',
        b'{"version": "1.0", "model": {"type": "Klingon"}}',
    ],
)
def test_a_broken_tokenizer_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is not a valid tokenizer"):
        Tokenizer.from_directory(tmp_path)


def test_a_panic_of_the_library_is_a_broken_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        """Like pyo3's, which is no Exception."""

    def panic(data: bytes) -> Library:
        raise PanicException("index out of bounds")

    tiny_directory(tmp_path)
    monkeypatch.setattr("core_runtime.tokenizer.tokenizer_json.Library.from_buffer", panic)
    with pytest.raises(TokenizerError, match="index out of bounds"):
        Tokenizer.from_directory(tmp_path)


def test_a_missing_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no tokenizer"):
        Tokenizer.from_directory(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", b"{"),
        ("tokenizer_config.json", b"[]"),
        ("tokenizer_config.json", b'{"chat_template": 5}'),
        ("config.json", b"\xff"),
        ("chat_template.jinja", b"\xff\xfe"),
    ],
)
def test_a_broken_file_beside_it_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    tiny_directory(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TokenizerError, match=name.replace(".", r"\.")):
        Tokenizer.from_directory(tmp_path)


def test_a_byte_order_mark_and_line_ends_of_windows_say_nothing(tmp_path: Path) -> None:
    """As an editor on Windows may save each of the files."""
    template = "{% for m in messages %}\n{{ bos_token }}{{ m.content }}\n{% endfor %}"
    files = tiny_directory(tmp_path, chat_template="not this one")
    (files / "chat_template.jinja").write_text(template)
    (files / "config.json").write_text('{"model_type": "llama"}')
    hello = [Message("user", "hi")]
    before = Tokenizer.from_directory(files)
    assert before.render_chat(hello) == "<s>hi\n"
    for file in files.iterdir():
        file.write_bytes(file.read_text().replace("\n", "\r\n").encode("utf-8-sig"))
    after = Tokenizer.from_directory(files)
    assert after.render_chat(hello) == before.render_chat(hello)
    assert after.encode("hi </s> é") == before.encode("hi </s> é")


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_file_without_permission(name: str) -> None:
    with tempfile.TemporaryDirectory() as place:  # pytest's own is closed to other users
        directory = tiny_directory(Path(place))
        directory.chmod(0o755)
        (directory / "chat_template.jinja").touch()
        command = [sys.executable, "-c", _AS_NOBODY, str(directory / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert name in done.stdout
    assert "permission" in done.stdout


def test_roles_are_checked(smollm2: Tokenizer) -> None:
    with pytest.raises(InvalidOptionError, match="role"):
        smollm2.render_chat([Message("<|im_start|>", "hi")])  # type: ignore[arg-type]


def test_the_template_of_smollm2_is_its_own(smollm2: Tokenizer) -> None:
    assert smollm2.render_chat([Message("user", "Hi")]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_gemma_has_the_format_of_its_family(gemma3: Tokenizer) -> None:
    assert gemma3.render_chat([Message("user", "Hi")]) == (
        "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
    )
