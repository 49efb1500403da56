"""Broken model directories: each ends in a typed error that names what is wrong."""

from __future__ import annotations

import json
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import core
from core_mlx_native.backend import Cpu

Checkpoint = Callable[..., Path]
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"]
EVERY = pytest.mark.parametrize("family", FAMILIES)


def load(directory: Path) -> core.TextModel:
    return Cpu().load_model(directory, core.LoadConfig())


def edit(directory: Path, **changes: Any) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@EVERY
def test_the_untouched_checkpoint_loads(checkpoint: Checkpoint, family: str) -> None:
    with load(checkpoint(family)) as model:
        assert model.classify(["ab"])[0].error is None


@EVERY
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 30}, "hidden_size|shape|whole number|head"),
        ({"hidden_size": 64}, "shape"),
        ({"intermediate_size": 40}, "mlp.gate_proj.weight has shape"),
        ({"num_hidden_layers": 9}, "layers.[23].* is missing|is not a list of"),
        ({"num_hidden_layers": 1}, "is not part of this model|is not a list of"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers|is not a list of"),
        ({"num_attention_heads": 3}, "does not divide"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_key_value_heads": 4}, "k_proj.weight has shape"),
        ({"vocab_size": 10**12}, "vocab_size is"),
        ({"vocab_size": 500}, "embed_tokens.weight has shape"),
        ({"vocab_size": "many"}, "vocab_size is 'many'"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"head_dim": 7}, "odd"),
        ({"head_dim": 8.5}, "head_dim is 8.5"),
        ({"rms_norm_eps": -1}, "rms_norm_eps"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps"),
        ({"rope_theta": 0, "rope_parameters": None}, "rope_theta"),
        ({"rope_scaling": "big"}, "rope_scaling is 'big'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": None}}, "factor"),
        ({"max_position_embeddings": -5}, "max_position_embeddings is -5"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"quantization": {"bits": 4, "group_size": 0}}, "group_size"),
    ],
)
def test_a_lying_config_is_an_invalid_model(
    checkpoint: Checkpoint, family: str, changes: dict[str, Any], message: str
) -> None:
    directory = checkpoint(family)
    edit(directory, **changes)
    with pytest.raises(core.InvalidModelError, match=message):
        load(directory)


@EVERY
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "'mamba'"),
        ({"model_type": None}, "None"),
        ({"model_type": ["llama"]}, "llama"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}}, "rope type 'yarn'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, "rope type 'dynamic'"),
        ({"hidden_act": "relu", "hidden_activation": "relu"}, "activation 'relu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"quantization": {"bits": 4}}, "affine"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64}}, "affine"),
    ],
)
def test_what_has_no_code_is_refused_by_name(
    checkpoint: Checkpoint, family: str, changes: dict[str, Any], message: str
) -> None:
    directory = checkpoint(family)
    edit(directory, **changes)
    with pytest.raises(core.UnsupportedModelError, match=message):
        load(directory)
    assert message.strip("'") in (Cpu().refusal(directory) or "")


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["full_attention"]},
        {"layer_types": 5},
        {"sliding_window": 0},
        {"sliding_window": "wide"},
        {"rope_parameters": 3},
        {"rope_parameters": {"full_attention": 7}},
    ],
)
def test_a_lying_gemma_config_is_an_invalid_model(
    checkpoint: Checkpoint, changes: dict[str, Any]
) -> None:
    directory = checkpoint("gemma3")
    edit(directory, **changes)
    with pytest.raises(core.InvalidModelError):
        load(directory)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("mistral", {"sliding_window": 0}),
        ("mistral", {"sliding_window": "all"}),
        ("qwen2", {"use_sliding_window": "yes"}),
        ("qwen2", {"max_window_layers": -1}),
        ("qwen3", {"layer_types": ["full_attention"]}),
        ("qwen3", {"sliding_window": 2.5}),
        ("gemma2", {"attn_logit_softcapping": 0}),
        ("gemma2", {"final_logit_softcapping": "soft"}),
        ("gemma2", {"sliding_window_pattern": -2}),
        ("gemma2", {"query_pre_attn_scalar": 0}),
    ],
)
def test_a_lie_of_one_family_is_an_invalid_model(
    checkpoint: Checkpoint, family: str, changes: dict[str, Any]
) -> None:
    directory = checkpoint(family)
    edit(directory, **changes)
    with pytest.raises(core.InvalidModelError, match=next(iter(changes))):
        load(directory)


def test_an_unknown_layer_type_and_bidirectional_attention_are_refused(
    checkpoint: Checkpoint,
) -> None:
    directory = checkpoint("gemma3")
    edit(directory, layer_types=["sliding_attention", "linear_attention", "full_attention"])
    with pytest.raises(core.UnsupportedModelError, match="linear_attention"):
        load(directory)
    edit(directory, layer_types=None, use_bidirectional_attention=True)
    with pytest.raises(core.UnsupportedModelError, match="use_bidirectional_attention"):
        load(directory)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_an_unreadable_config_is_an_invalid_model(checkpoint: Checkpoint, content: bytes) -> None:
    directory = checkpoint()
    (directory / "config.json").write_bytes(content)
    with pytest.raises(core.InvalidModelError, match=r"config\.json"):
        load(directory)


def test_a_directory_without_config_is_not_a_model(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    (directory / "config.json").unlink()
    with pytest.raises(core.ModelNotFoundError, match=r"config\.json"):
        core.load_model(directory)


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(core.ModelNotFoundError, match="nowhere"):
        core.load_model(tmp_path / "nowhere", backend="mlx_cpu")


# ------------------------------------------------------------------ tensors


def read_tensors(file: Path) -> dict[str, mx.array]:
    tensors = mx.load(str(file))
    assert isinstance(tensors, dict)
    mx.eval(list(tensors.values()))
    return tensors


def rewrite(directory: Path, change: Callable[[dict[str, mx.array]], None]) -> None:
    file = directory / "model.safetensors"
    tensors = read_tensors(file)
    change(tensors)
    file.unlink()
    mx.save_safetensors(str(file), tensors)


@EVERY
def test_missing_extra_and_misshaped_tensors_are_listed_together(
    checkpoint: Checkpoint, family: str
) -> None:
    directory = checkpoint(family, tie_word_embeddings=False)

    def change(tensors: dict[str, mx.array]) -> None:
        del tensors["model.layers.1.mlp.up_proj.weight"]
        tensors["model.layers.0.self_attn.r_proj.weight"] = mx.zeros((2, 2))
        tensors["model.norm.weight"] = mx.zeros((31,))
        tensors["lm_head.weight"] = tensors["lm_head.weight"].astype(mx.int32)

    rewrite(directory, change)
    with pytest.raises(core.InvalidModelError) as caught:
        load(directory)
    message = str(caught.value)
    assert "model.layers.1.mlp.up_proj.weight is missing" in message
    assert "model.layers.0.self_attn.r_proj.weight is not part of this model" in message
    assert "model.norm.weight has shape [31], not [32]" in message
    assert "lm_head.weight has dtype I32" in message


def test_a_truncated_file_is_an_invalid_model(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    file = directory / "model.safetensors"
    whole = file.read_bytes()
    for size in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(core.InvalidModelError, match=r"model\.safetensors"):
            load(directory)


def test_a_header_that_claims_too_much_is_an_invalid_model(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(core.InvalidModelError):
        load(directory)


def test_no_weights_at_all(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    assert Cpu().refusal(directory) is None
    (directory / "model.safetensors").unlink()
    with pytest.raises(core.InvalidModelError, match="no weights"):
        load(directory)
    assert "no weights" in str(Cpu().refusal(directory))


def test_what_is_not_a_model_at_all_is_told_in_the_words_of_core(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "page.gguf").write_text("<html>")
    (tmp_path / "empty").mkdir()
    for name, error, words in (
        ("notes.txt", core.ModelNotFoundError, "is not a GGUF file"),
        ("page.gguf", core.InvalidModelError, "does not start with 'GGUF'"),
        ("empty", core.ModelNotFoundError, "is not a model directory"),
    ):
        with pytest.raises(error, match=words):
            core.load_model(tmp_path / name, backend="mlx_cpu")
        assert words in str(Cpu().refusal(tmp_path / name))


@pytest.mark.parametrize(
    "index",
    [
        "{",
        "[]",
        "{}",
        '{"weight_map": 3}',
        '{"weight_map": {"a": 7}}',
        '{"weight_map": {"a": "gone.safetensors"}}',
        '{"weight_map": {"a": "../model.safetensors"}}',
    ],
)
def test_a_broken_weight_index_is_an_invalid_model(checkpoint: Checkpoint, index: str) -> None:
    directory = checkpoint()
    (directory / "model.safetensors.index.json").write_text(index)
    with pytest.raises(core.InvalidModelError, match="index"):
        load(directory)


def test_sharded_weights_are_the_same_model(checkpoint: Checkpoint) -> None:
    whole, parts = checkpoint(name="whole"), checkpoint(name="parts")
    tensors = read_tensors(parts / "model.safetensors")
    (parts / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, held in shards.items():
        mx.save_safetensors(str(parts / shard), {name: tensors[name] for name in held})
    weight_map = {name: shard for shard, held in shards.items() for name in held}
    (parts / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with load(whole) as one, load(parts) as other:
        options: core.ClassifyOptions = {"return_logits": True}
        left, right = one.classify(["ab ab"], **options), other.classify(["ab ab"], **options)
    assert left[0].logits == right[0].logits


# ------------------------------------------------------------------ tokenizer


def test_a_missing_tokenizer_is_named(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    (directory / "tokenizer.json").unlink()
    with pytest.raises(core.TokenizerError, match=r"tokenizer\.json"):
        load(directory)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"model": {"type": "Nonsense"}}'])
def test_a_broken_tokenizer_is_named(checkpoint: Checkpoint, content: bytes) -> None:
    directory = checkpoint()
    (directory / "tokenizer.json").write_bytes(content)
    with pytest.raises(core.TokenizerError, match=r"tokenizer\.json"):
        load(directory)


def test_a_tokenizer_of_another_model_is_noticed(checkpoint: Checkpoint) -> None:
    directory = checkpoint(vocab_size=90)
    with pytest.raises(core.InvalidModelError, match="do not belong together"):
        load(directory)


# ------------------------------------------------------------------ rights


WITHOUT_RIGHTS = """
import os, sys
from pathlib import Path
import core
directory = Path(sys.argv[1])
core.load_model(directory, backend="mlx_cpu").close()  # everything is imported while it may be
if os.getuid() == 0:
    os.setuid(65534)
for name in ("config.json", "model.safetensors", "tokenizer.json"):
    print(name, flush=True)  # the parent takes the rights away, then answers
    sys.stdin.readline()
    try:
        core.load_model(directory, backend="mlx_cpu")
    except core.ModelAccessError as error:
        print("refused" if name in str(error) else error, flush=True)
"""


def test_files_without_permission_are_a_typed_error(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    for parent in [directory, *directory.parents]:
        if not (mode := parent.stat().st_mode) & stat.S_IXOTH:
            parent.chmod(mode | 0o055)  # pytest's own folders let nobody else in
    command = [sys.executable, "-c", WITHOUT_RIGHTS, str(directory)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin
        assert child.stdout
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            assert child.stdout.readline().strip() == name
            (directory / name).chmod(0)
            print(file=child.stdin, flush=True)
            assert child.stdout.readline().strip() == "refused"
            (directory / name).chmod(0o644)
