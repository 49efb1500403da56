"""Conversion against the weights that the GGUF file was made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize, quantize

from core.errors import ConversionError, InvalidOptionError
from core_mlx_native.checkpoint.weights import load_weights
from core_mlx_native.convert import convert
from core_runtime.checkpoint.config import load_config
from core_runtime.gguf.config import llama3_divisors

MakeGguf = Callable[..., Any]


def tensors(directory: Path) -> dict[str, mx.array]:
    found: dict[str, mx.array] = {}
    for path in directory.glob("*.safetensors"):
        loaded = mx.load(str(path))
        assert isinstance(loaded, dict)
        found.update(loaded)
    return found


def config(directory: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((directory / "config.json").read_bytes())
    return content


def assert_equal(
    found: Mapping[str, mx.array], expected: Mapping[str, Any], tolerance: float
) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(
            np.array(found[name].astype(mx.float32)), array, rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_weights_are_the_original_ones(
    tmp_path: Path, tiny_gguf: MakeGguf, architecture: str, tied: bool
) -> None:
    tiny = tiny_gguf(architecture, tied=tied)
    out = convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "out")
    assert_equal(tensors(out), tiny.hf, 1e-6)  # Gemma's norms went through +1 and -1
    assert config(out)["tie_word_embeddings"] is tied


def loaded_tensors(directory: Path) -> dict[str, mx.array]:
    """Everything that a load takes from a checkpoint."""
    weights = load_weights(directory, load_config(directory), mx.float32)
    return {name: weights.take(name) for name in weights.names}


def test_config_has_transformers_keys_for_llama(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    out = convert(tiny_gguf("llama").write(tmp_path / "m.gguf"), tmp_path / "out")
    assert config(out) == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 9,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50_000.0,
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
        "use_cache": True,
    }
    assert json.loads((out / "generation_config.json").read_bytes())["eos_token_id"] == [2, 0]
    assert (out / "chat_template.jinja").read_text() == "{{ messages[0].content }}"


def test_config_of_gemma_names_its_layers(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf("gemma3")
    tiny.metadata |= {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}
    out = convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "out")
    found = config(out)
    sliding = "sliding_attention"
    assert found["layer_types"] == [sliding] * 5 + ["full_attention", sliding]
    assert found["sliding_window"] == 8
    assert (found["rope_theta"], found["rope_local_base_freq"]) == (1e6, 1e4)
    assert found["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}
    assert found["query_pre_attn_scalar"] == 16
    assert json.loads((out / "generation_config.json").read_bytes())["eos_token_id"] == [1, 5]
    assert not (out / "chat_template.jinja").exists()


def test_a_layer_pattern_in_the_file_is_taken(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf("gemma3")
    tiny.metadata["gemma3.attention.sliding_window_pattern"] = [True, False] * 3 + [False]
    found = config(convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "out"))
    assert [name == "sliding_attention" for name in found["layer_types"]] == (
        [True, False] * 3 + [False]
    )


def test_llama3_rope_is_recovered_from_its_divisors(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    tiny = tiny_gguf("llama")
    divisors = llama3_divisors(scaling, 50_000.0, 16)
    assert divisors[0] == 1.0
    assert divisors[-1] == 32.0
    tiny.tensors["rope_freqs.weight"] = np.array(divisors, np.float32)
    out = convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "out")
    assert config(out)["rope_scaling"] == scaling
    assert "rope_freqs.weight" not in tensors(out)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}, 2.0),
        ({"rope.scaling.factor": 2.0}, 2.0),
        ({"rope.scale_linear": 4.0}, 4.0),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 2.0}, None),
        ({"rope.scaling.factor": 0.0}, None),
    ],
)
def test_linear_rope_scaling_as_llama_cpp_reads_it(
    tmp_path: Path, tiny_gguf: MakeGguf, keys: dict[str, Any], expected: float | None
) -> None:
    tiny = tiny_gguf("llama")
    tiny.metadata |= {f"llama.{key}": value for key, value in keys.items()}
    found = config(convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "out"))["rope_scaling"]
    assert found == (expected and {"rope_type": "linear", "factor": expected})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_lower_precision(tmp_path: Path, tiny_gguf: MakeGguf, dtype: str) -> None:
    tiny = tiny_gguf("llama")
    out = convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "out", dtype=dtype)
    found = tensors(out)
    assert {str(array.dtype) for array in found.values()} == {f"mlx.core.{dtype}"}
    assert_equal(found, tiny.hf, 2**-8)
    assert config(out)["torch_dtype"] == dtype


@pytest.mark.parametrize(("value", "dtype"), [(70_000.0, "float16"), (np.nan, "float32")])
def test_a_value_that_does_not_fit_names_its_tensor(
    tmp_path: Path, tiny_gguf: MakeGguf, value: float, dtype: str
) -> None:
    tiny = tiny_gguf("llama")
    tiny.tensors["blk.1.ffn_up.weight"][3, 5] = value
    source = tiny.write(tmp_path / "m.gguf")
    with pytest.raises(ConversionError, match=r"layers\.1\.mlp\.up_proj\.weight does not fit"):
        convert(source, tmp_path / "out", dtype=dtype)
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_layout(tmp_path: Path, tiny_gguf: MakeGguf, bits: int) -> None:
    tiny = tiny_gguf("llama", tied=False)
    out = convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "out", bits=bits, group_size=32)
    assert config(out)["quantization"] == {"group_size": 32, "bits": bits}
    found = tensors(out)
    for name, array in tiny.hf.items():
        if array.ndim == 1:
            np.testing.assert_array_equal(np.array(found[name]), array)
            continue
        base = name.removesuffix(".weight")
        assert found[name].dtype == mx.uint32
        scales = found[f"{base}.scales"]
        back = mx.dequantize(found[name], scales, found[f"{base}.biases"], group_size=32, bits=bits)
        # Half a step by rounding; MLX moves the grid to meet the larger extreme of a group, so
        # that the other one may lie a step outside of it.
        steps = np.abs(np.array(back) - array) / np.repeat(np.abs(np.array(scales)), 32, axis=1)
        assert steps.max() < 1.05
        assert np.median(steps) < 0.3
    assert loaded_tensors(out).keys() == tiny.hf.keys()


def test_matrices_that_do_not_divide_into_groups_stay(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    out = convert(tiny_gguf().write(tmp_path / "m.gguf"), tmp_path / "out", bits=4, group_size=64)
    kinds = {name: array.dtype for name, array in tensors(out).items()}
    assert kinds["model.layers.0.mlp.up_proj.weight"] == mx.uint32  # 64 columns
    assert kinds["model.layers.0.mlp.down_proj.weight"] == mx.float32  # 96 columns
    assert "model.layers.0.mlp.down_proj.weight" in loaded_tensors(out)


def test_shards(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf("llama")
    out = convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "out", shard_bytes=50_000)
    files = sorted(path.name for path in out.glob("*.safetensors"))
    count = len(files)
    assert count > 2
    assert files == [f"model-{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)]
    assert all((out / name).stat().st_size < 55_000 for name in files)
    index = json.loads((out / "model.safetensors.index.json").read_bytes())
    assert set(index["weight_map"].values()) == set(files)
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in tiny.hf.values())
    for name, file in index["weight_map"].items():
        assert name in mx.load(str(out / file))
    assert_equal(loaded_tensors(out), tiny.hf, 0)


def test_quantised_sources_are_dequantised(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf("llama")
    kinds = {
        "blk.0.ffn_up.weight": GGMLQuantizationType.Q8_0,
        "blk.1.ffn_up.weight": GGMLQuantizationType.Q4_1,
        "blk.0.ffn_gate.weight": GGMLQuantizationType.F16,
    }
    tiny.quantized = kinds
    found = tensors(convert(tiny.write(tmp_path / "m.gguf"), tmp_path / "out"))
    for name, kind in kinds.items():
        hf = name.replace("blk", "model.layers").replace("ffn_", "mlp.").replace(".w", "_proj.w")
        expected = dequantize(quantize(tiny.hf[hf], kind), kind)
        np.testing.assert_array_equal(np.array(found[hf]), expected)


@pytest.mark.slow
def test_real_weights_are_those_that_the_gguf_package_reads(
    smollm2_dir: Path, smollm2_gguf: Path
) -> None:
    found = mx.load(str(smollm2_dir / "model.safetensors"))
    assert isinstance(found, dict)
    read = {tensor.name: tensor for tensor in GGUFReader(smollm2_gguf).tensors}
    assert len(read) == len(found)
    for gguf, hf in [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.29.ffn_down.weight", "model.layers.29.mlp.down_proj.weight"),
        ("output_norm.weight", "model.norm.weight"),
    ]:
        expected = dequantize(read[gguf].data, read[gguf].tensor_type)
        np.testing.assert_array_equal(np.array(found[hf]), expected)
    stored = dequantize(read["blk.3.attn_k.weight"].data, read["blk.3.attn_k.weight"].tensor_type)
    key = np.array(found["model.layers.3.self_attn.k_proj.weight"])
    again = key.reshape(3, 2, 32, 576).swapaxes(1, 2).reshape(192, 576)  # as llama.cpp permutes
    np.testing.assert_array_equal(again, stored)


@pytest.mark.parametrize(
    ("option", "value"),
    [("dtype", "int8"), ("bits", 3), ("bits", 16), ("group_size", 48), ("shard_bytes", 0)],
)
def test_wrong_options_are_named(
    tmp_path: Path, tiny_gguf: MakeGguf, option: str, value: object
) -> None:
    source = tiny_gguf().write(tmp_path / "m.gguf")
    with pytest.raises(InvalidOptionError, match=option):
        convert(source, tmp_path / "out", **{option: value})  # type: ignore[arg-type]
