"""Files at which llama.cpp would end the process: refused by name, or loaded where they are legal.

Loads and calls run in child processes, so that a process that ends is seen.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

import core
from core.errors import InvalidModelError, ModelError, TokenizerError
from core_llama_cpp.checkpoint.header import read_header
from core_llama_cpp.checkpoint.soundness import check_soundness
from core_runtime.gguf_files import find_files

TinyGguf = Callable[..., Path]
NAN = float("nan")
EPSILON = "llama.attention.layer_norm_rms_epsilon"
EXPERTS = {"llama.expert_count": 4, "llama.expert_used_count": 2}
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["<unk>", "<s>", "</s>", *BYTES, "▁", "a", "b", "▁a", "▁b", "ab", "▁ab"]

# Prints "refused", or "answered" when a call of every kind came back.
CALLS = """
import sys
import core
try:
    model = core.load_model(sys.argv[1], backend="llama_cpp", options={"n_threads": 1})
except core.ModelError as error:
    sys.exit(f"refused: {error}")
model.encode("ab é 日 \\0 \\x01 zq")
list(model.generate("ab é\\n", max_tokens=3))
model.classify(["ab a", "b"], labels=["a", "bb"])
model.decode(range(model.info.vocab_size))
model.close()
print("answered")
"""


def ends(path: Path) -> str:
    """What comes of calls on a model in a process of their own, which has to end by itself."""
    command = [sys.executable, "-c", CALLS, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), f"{done.returncode}: {done.stderr[-1000:]}"
    return done.stdout + done.stderr


def check(path: Path) -> None:
    check_soundness(find_files(path), read_header(path))


def sentencepiece(tokens: list[str], model: str = "llama") -> dict[str, object]:
    """A vocabulary with scores; tokens of bytes are marked as such."""
    kinds = [2, 3, 3, *[6 if token.startswith("<0x") else 1 for token in tokens[3:]]]
    return {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.pre": None,
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": [float(-place) for place in range(len(tokens))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"llama.block_count": 513}, "513 layers"),
        ({"llama.block_count": 0}, "0 layers"),
        ({"llama.nextn_predict_layers": 2}, "2 of its 2 layers"),
        ({"llama.expert_count": 4}, "0 of 4 experts"),
        ({"llama.expert_count": 513, "llama.expert_used_count": 1}, "1 of 513 experts"),
        ({"llama.expert_used_count": 2}, "2 of 0 experts"),
        ({"llama.expert_group_count": 1}, "1 groups of 0 experts"),
        ({**EXPERTS, "llama.expert_group_count": 3}, "3 groups of 4 experts"),
        ({**EXPERTS, "llama.expert_group_count": 2}, "0 of 2 groups"),
        ({EPSILON: -1.0}, "epsilon is -1.0"),
        ({EPSILON: NAN}, "epsilon is nan"),
        ({EPSILON: float("inf")}, "epsilon is inf"),
        ({"llama.rope.scaling.type": "of-tomorrow"}, "of-tomorrow"),
        ({"llama.rope.dimension_count": 30}, "16 and 16 values, of which RoPE rotates 30"),
        ({"llama.attention.value_length": 8}, "16 and 8 values"),
        ({"llama.attention.head_count_kv": 3}, "layer 0 has 4 query heads and 3"),
        ({"llama.attention.head_count_kv": [2, 0]}, "layer 1 has 4 query heads and 0"),
        ({"general.alignment": 1}, "general.alignment is 1"),
        ({"general.alignment": 24}, "general.alignment is 24"),
        ({"tokenizer.ggml.tokens": ["a"] * 101}, "100 of its tokens occur twice"),
        ({"tokenizer.ggml.tokens": [*map(str, range(99)), "a", "a\0b"]}, "1 of its tokens"),
    ],
)
def test_contradictions_are_named(
    tiny_gguf: TinyGguf, change: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidModelError, match=words):
        check(tiny_gguf(change=change))


@pytest.mark.parametrize("alignment", [0, 3])
def test_an_alignment_that_is_none(tiny_gguf: TinyGguf, alignment: int) -> None:
    with pytest.raises(InvalidModelError, match=f"general.alignment is {alignment}"):
        check(tiny_gguf(change={"general.alignment": alignment}))


@pytest.mark.parametrize("alignment", [8, 16, 64])
def test_every_legal_alignment_loads(tiny_gguf: TinyGguf, alignment: int) -> None:
    """Whatever it is aligned to, it is the same model."""
    answers = []
    for path in (tiny_gguf("plain"), tiny_gguf("aligned", change={"general.alignment": alignment})):
        with core.load_model(path, backend="llama_cpp", options={"n_threads": 1}) as model:
            answers.append([token.id for token in model.generate("ab ab", max_tokens=8)])
            assert isinstance(model, core.Explaining)
            said = {choice.name: choice.value for choice in model.choices()}
    assert answers[0] == answers[1]
    assert ("mapped" in said) == (alignment < 32)


@pytest.mark.parametrize("kind", [9, 15, 24, 25, 26, 27, 28])
@pytest.mark.parametrize("name", ["output.weight", "token_embd.weight", "blk.0.attn_q.weight"])
def test_types_that_are_no_weights(tiny_gguf: TinyGguf, name: str, kind: int) -> None:
    with pytest.raises(InvalidModelError, match=f"'{name}' has the type"):
        check(retyped(tiny_gguf(), name, kind))


@pytest.mark.parametrize("kind", [1, 2, 8, 26, 30])
def test_norms_are_float32(tiny_gguf: TinyGguf, kind: int) -> None:
    with pytest.raises(InvalidModelError, match=r"'blk\.0\.attn_norm\.weight' has"):
        check(retyped(tiny_gguf(), "blk.0.attn_norm.weight", kind))


def test_a_type_of_tomorrow(tiny_gguf: TinyGguf) -> None:
    assert "invalid ggml type 99" in ends(retyped(tiny_gguf(), "output.weight", 99))


def retyped(path: Path, name: str, kind: int) -> Path:
    """The file with another type for one tensor, whose data stay."""
    reader = gguf.GGUFReader(path, "r+")
    field = next(tensor.field for tensor in reader.tensors if tensor.name == name)
    field.parts[4][0] = kind
    reader.data.flush()
    return path


@pytest.mark.parametrize("missing", [BYTES, ["<0xC3>"], ["<0x7A>"], ["<0x00>"]])
def test_sentencepiece_without_a_byte(tiny_gguf: TinyGguf, missing: list[str]) -> None:
    tokens = [token for token in PIECES if token not in missing]
    with pytest.raises(TokenizerError, match="no token for the byte <0x"):
        check(tiny_gguf(change=sentencepiece(tokens)))


def test_sentencepiece_with_all_that_a_text_may_need(tiny_gguf: TinyGguf) -> None:
    """A character stands for its byte; some bytes are in no text."""
    unused = ("<0x7A>", "<0x20>", "<0xC0>", "<0xC1>", *BYTES[0xF5:])
    tokens = [*(token for token in PIECES if token not in unused), "z"]
    assert "answered" in ends(tiny_gguf(change=sentencepiece(tokens), words=tokens))


def test_wordpiece_with_tokens_of_bytes(tiny_gguf: TinyGguf) -> None:
    with pytest.raises(TokenizerError, match="tokens of bytes"):
        check(tiny_gguf(change=sentencepiece(PIECES, "bert")))


def test_a_table_of_characters_that_nobody_checks(tiny_gguf: TinyGguf) -> None:
    change = {**sentencepiece(PIECES, "t5"), "tokenizer.ggml.precompiled_charsmap": [1, 2, 3]}
    with pytest.raises(TokenizerError, match="precompiled_charsmap"):
        check(tiny_gguf(change=change))


def test_tokens_that_are_no_unicode_are_compared(tiny_gguf: TinyGguf) -> None:
    words = [f"word{place}" for place in range(1100)]
    path = tiny_gguf(change={"tokenizer.ggml.tokens": words}, words=words)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"word1099", b"wor\xff1099"))
    check(path)
    path.write_bytes(
        content.replace(b"word1099", b"wor\xff1098").replace(b"word1098", b"wor\xff1098")
    )
    with pytest.raises(InvalidModelError, match="1 of its tokens occur twice"):
        check(path)


def test_what_loads_is_sound(tiny_gguf: TinyGguf, smollm2_gguf: Path, gemma3_gguf: Path) -> None:
    for path in (tiny_gguf("split", shards=2), smollm2_gguf, gemma3_gguf):
        check(path)
    with pytest.raises(ModelError):
        check(tiny_gguf(change={EPSILON: NAN}))
