"""What cannot be converted is refused with the reason, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import ConversionError, CoreError, InvalidModelError, ModelNotFoundError
from core_mlx_native.convert import convert
from core_mlx_native.convert.source import KnownSource, verified_sha256

MakeGguf = Callable[..., Any]


def assert_refused(tiny: Any, directory: Path, *reasons: str) -> None:
    source = tiny.write(directory / "m.gguf")
    with pytest.raises(ConversionError) as caught:
        convert(source, directory / "out")
    for reason in reasons:
        assert reason in str(caught.value)
    assert [path.name for path in directory.iterdir()] == ["m.gguf"]


def test_every_tensor_is_accounted_for(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf("llama")
    del tiny.tensors["blk.1.attn_v.weight"]
    tiny.tensors["blk.0.ssm_a.weight"] = np.zeros(4, np.float32)
    tiny.tensors["blk.2.attn_q.weight"] = np.zeros((64, 64), np.float32)
    tiny.tensors["blk.0.ffn_norm.weight"] = np.zeros(32, np.float32)
    assert_refused(
        tiny,
        tmp_path,
        "blk.0.ssm_a.weight is unknown",
        "model.layers.1.self_attn.v_proj.weight is missing",
        "model.layers.2.self_attn.q_proj.weight is not part of the model",
        "model.layers.0.post_attention_layernorm.weight has shape [32], not [64]",
    )


def test_a_long_list_of_tensors_is_cut(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf("llama")
    tiny.tensors = {"token_embd.weight": tiny.tensors["token_embd.weight"]}
    assert_refused(tiny, tmp_path, "; and 7 more")


def test_an_unknown_architecture_is_named(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf("llama")
    tiny.architecture = "mamba"
    assert_refused(tiny, tmp_path, "'mamba'", "supported: llama, gemma3", "llama_cpp")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("llama.expert_count", 8, "mixtures of experts"),
        ("split.count", 3, "llama-gguf-split --merge"),
        ("llama.rope.scaling.type", "yarn", "'yarn'"),
        ("llama.rope.dimension_count", 8, "part of each head"),
        ("llama.attention.value_length", 8, "differ in length"),
        ("llama.block_count", 2**31, "2147483648 layers"),
        ("llama.attention.head_count", 0, "0 attention heads"),
        ("tokenizer.ggml.pre", "klingon", "'klingon'"),
        ("tokenizer.ggml.model", "bert", "'bert'"),
        ("tokenizer.ggml.tokens", ["a"] * 9, "a token twice"),
        ("tokenizer.ggml.tokens", [*"abcdefgh", "x" * 2000], "more than 1024 characters"),
        ("tokenizer.ggml.tokens", [*"abcdefghijk"], "11 tokens"),
        ("tokenizer.ggml.merges", ["ab"], "no space"),
        ("tokenizer.ggml.merges", ["a z"], "inconsistent"),
        ("tokenizer.ggml.eos_token_id", 9, "not in the vocabulary"),
        ("tokenizer.ggml.token_type", [1], "1 items, not 9"),
        ("tokenizer.ggml.suppress_tokens", [3], "suppress_tokens=[3]: the key is not converted"),
        ("general.name", "My Phi-3", "special tokens strip the white space"),
        ("llama.logit_scale", 0.5, "llama.logit_scale=0.5: the key is not converted"),
        ("llama.context_length", "long", "not an integer"),
    ],
)
def test_refused_metadata(
    tmp_path: Path, tiny_gguf: MakeGguf, key: str, value: object, reason: str
) -> None:
    tiny = tiny_gguf("llama")
    tiny.metadata[key] = value
    assert_refused(tiny, tmp_path, reason)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("tokenizer.ggml.add_space_prefix", True, "prepends a space"),
        ("gemma3.attention.sliding_window", None, "lacks gemma3.attention.sliding_window"),
    ],
)
def test_refused_metadata_of_gemma(
    tmp_path: Path, tiny_gguf: MakeGguf, key: str, value: object, reason: str
) -> None:
    tiny = tiny_gguf("gemma3")
    tiny.metadata[key] = value
    if value is None:
        del tiny.metadata[key]
    assert_refused(tiny, tmp_path, reason)


@pytest.mark.parametrize("shape", [(8,), (7,), (8, 1), (1, 8)])
def test_unknown_rope_divisors(tmp_path: Path, tiny_gguf: MakeGguf, shape: tuple[int, ...]) -> None:
    tiny = tiny_gguf("llama")
    divisors = np.linspace(1, 8, math.prod(shape), dtype=np.float32)
    tiny.tensors["rope_freqs.weight"] = divisors.reshape(shape)
    assert_refused(tiny, tmp_path, "rope_freqs.weight does not match")


def test_rope_divisors_beside_another_scaling(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf("llama")
    tiny.tensors["rope_freqs.weight"] = np.ones(8, np.float32)
    tiny.metadata["llama.rope.scaling.factor"] = 4.0
    assert_refused(tiny, tmp_path, "rope_freqs.weight does not match")


def test_a_tensor_that_is_there_twice(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    source = tiny_gguf("llama").write(tmp_path / "m.gguf")
    data = source.read_bytes()
    assert data.count(b"blk.0.attn_q.weight") == 1
    source.write_bytes(data.replace(b"blk.0.attn_q.weight", b"blk.0.attn_k.weight"))
    with pytest.raises(ConversionError, match="two tensors have the same name"):
        convert(source, tmp_path / "out")


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_lying_metadata_gives_typed_errors(
    tmp_path: Path, tiny_gguf: MakeGguf, data: st.DataObject
) -> None:
    tiny = tiny_gguf(data.draw(st.sampled_from(["llama", "gemma3"])))
    key = data.draw(st.sampled_from(sorted(tiny.metadata)))
    lies = [0, 1, 2**32 - 1, 1.5, float("nan"), "", "x", True, [0], ["x"], [1.0]]
    tiny.metadata[key] = data.draw(st.sampled_from(lies))
    source = tiny.write(tmp_path / "m.gguf")
    with contextlib.suppress(CoreError):
        convert(source, tmp_path / "out", overwrite=True)


def test_a_truncated_file(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    source = tiny_gguf("llama").write(tmp_path / "m.gguf")
    source.write_bytes(source.read_bytes()[:-2000])
    with pytest.raises(InvalidModelError, match="is truncated"):
        convert(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    source = tmp_path / "m.gguf"
    source.write_bytes(b"not a model at all, and longer than a header")
    with pytest.raises(InvalidModelError, match="GGUF"):
        convert(source, tmp_path / "out")


@pytest.mark.parametrize("name", ["missing.gguf", "."])
def test_no_such_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelNotFoundError):
        convert(tmp_path / name, tmp_path / "out")


def test_the_expected_checksum_is_verified(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    source = tiny_gguf("llama").write(tmp_path / "m.gguf")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    with pytest.raises(ConversionError, match=f"has SHA-256 {digest}, expected 00"):
        convert(source, tmp_path / "out", expect_sha256="00" * 32)
    with pytest.raises(ConversionError, match="expected "):  # an unset variable of a shell
        convert(source, tmp_path / "out", expect_sha256="")
    assert convert(source, tmp_path / "out", expect_sha256=digest.upper()).is_dir()


def test_a_known_file_must_have_its_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "known.gguf"
    source.write_bytes(b"GGUF, damaged")
    digest = hashlib.sha256(b"GGUF, damaged").hexdigest()
    damaged = KnownSource("known.gguf", 13, "ab" * 32, "known")
    monkeypatch.setattr("core_mlx_native.convert.source.KNOWN_SOURCES", (damaged,))
    with pytest.raises(ConversionError, match="damaged or a different build"):
        verified_sha256(source)
    assert verified_sha256(source, digest) == digest  # the caller knows better
    source.write_bytes(b"GGUF, of another size")
    assert verified_sha256(source) == hashlib.sha256(b"GGUF, of another size").hexdigest()
