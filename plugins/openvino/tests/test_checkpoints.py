"""Forms of a checkpoint: GGUF files, MLX's packed integers, 16-bit floats, shards, prefixes."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file

import core
from core_openvino.backend import OpenVino
from core_openvino.loaded import LoadedModel
from core_openvino.model import OpenVinoModel
from core_runtime.gguf.config import hf_config
from core_runtime.gguf.metadata import LOAD
from core_runtime.gguf.source import GgufSource
from plugins.openvino.tests.passes import (
    Logits,
    assert_equal_rows,
    distance,
    last_logits,
    session_of,
    skip_without_instructions,
)
from runtime.tests.gguf.tiny_gguf import TinyGguf, tiny_gguf
from runtime.tests.tiny import FAMILIES, Checkpoint

Tensors = dict[str, npt.NDArray[Any]]
PROMPTS = [[2], [5, 6, 7, 8], list(range(3, 40))]
SIZES = {"hidden_size": 128, "intermediate_size": 128}
PACKED_FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"]
EXACT: dict[str, Any] = {"dtype": "float32", "n_threads": 1}


def _logits(directory: Path, dtype: str = "float32") -> Logits:
    with session_of(directory, dtype) as session:
        return last_logits(session, PROMPTS)


def _stored(array: npt.NDArray[Any], kind: str) -> npt.NDArray[Any]:
    """Return floats as they are stored in a kind; BF16 by cutting bits off."""
    if array.dtype != np.float32 or kind == "F32":
        return array
    return array.astype(np.float16) if kind == "F16" else (array.view("<u4") >> 16).astype("<u2")


def _read_back(array: npt.NDArray[np.float32], kind: str) -> npt.NDArray[np.float32]:
    stored = _stored(array, kind)
    if kind == "BF16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


def _save(tensors: Tensors, file: Path, kind: str = "F32") -> None:
    """Write a safetensors file, its floats in a kind that numpy may not have."""
    header, parts, place = dict[str, Any](), list[bytes](), 0
    for name, array in tensors.items():
        data = np.ascontiguousarray(_stored(array, kind)).tobytes()
        entry = {"dtype": kind if array.dtype == np.float32 else "U32", "shape": array.shape}
        header[name] = {**entry, "data_offsets": [place, place + len(data)]}
        place += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def _edit(directory: Path, tensors: Tensors, kind: str = "F32", **config: Any) -> Path:
    """Write other tensors, and other keys of config.json."""
    settings = directory / "config.json"
    _save(tensors, directory / "model.safetensors", kind)
    settings.write_text(json.dumps({**json.loads(settings.read_text()), **config}))
    return directory


# ------------------------------------------------------------ MLX's packed integers


def _packed(name: str, matrix: npt.NDArray[np.float32], bits: int, group: int) -> Tensors:
    """Quantise as MLX does: a scale and an offset per group; the lowest bits of a word first."""
    rows, columns = matrix.shape
    groups = matrix.reshape(rows, columns // group, group)
    low, high = groups.min(axis=-1), groups.max(axis=-1)
    scales = (high - low) / (2**bits - 1)
    integers = np.rint((groups - low[..., None]) / scales[..., None]).astype(np.uint8)
    stream = np.unpackbits(integers[..., None], axis=-1, bitorder="little")[..., :bits]
    words = np.packbits(stream.reshape(rows, -1), axis=1, bitorder="little").view(np.uint32)
    return {f"{name}.weight": words, f"{name}.scales": scales, f"{name}.biases": low}


def _unpacked(name: str, packed: Tensors, bits: int) -> npt.NDArray[np.float32]:
    words, scales = packed[f"{name}.weight"], packed[f"{name}.scales"]
    stream = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
    weights = 1 << np.arange(bits)
    integers = (stream.reshape(len(words), -1, bits) * weights).sum(axis=-1)
    groups = integers.reshape(*scales.shape, -1)
    dense = groups * scales[..., None] + packed[f"{name}.biases"][..., None]
    matrix: npt.NDArray[np.float32] = dense.reshape(len(words), -1).astype(np.float32)
    return matrix


def _both(directory: Path, bits: int, group: int, kind: str = "F32") -> tuple[Tensors, Tensors]:
    """Return a checkpoint's tensors with all matrices packed, and the same ones dequantised.

    ``kind``: of the scales and offsets.
    """
    packed, dense = Tensors(), Tensors()
    for name, tensor in load_file(directory / "model.safetensors").items():
        packed[name] = dense[name] = _read_back(tensor, kind)
        if tensor.ndim == 2:
            layer = name.removesuffix(".weight")
            parts = _packed(layer, tensor, bits, group)
            for part in ("scales", "biases"):
                parts[f"{layer}.{part}"] = _read_back(parts[f"{layer}.{part}"], kind)
            packed |= parts
            dense[name] = _unpacked(layer, parts, bits)
    return packed, dense


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_all_bits_and_groups(checkpoint: Checkpoint, bits: int, group: int) -> None:
    directory = checkpoint("llama", **SIZES, tie_word_embeddings=bits % 2 == 0)
    packed, dense = _both(directory, bits, group)
    expected = _logits(_edit(directory, dense))
    quantization = {"bits": bits, "group_size": group}
    found = _logits(_edit(directory, packed, quantization=quantization))
    assert_equal_rows(found, expected)


@pytest.mark.parametrize("kind", ["F16", "BF16"])
@pytest.mark.parametrize("family", PACKED_FAMILIES)
def test_packed_families(checkpoint: Checkpoint, family: str, kind: str) -> None:
    directory = checkpoint(family, **SIZES)
    packed, dense = _both(directory, 4, 64, kind)
    expected = _logits(_edit(directory, dense))
    quantization = {"bits": 4, "group_size": 64}
    found = _logits(_edit(directory, packed, kind, quantization=quantization))
    assert_equal_rows(found, expected)
    with core.load_model(directory, backend="openvino") as model:
        assert (model.info.quant_bits, model.info.quant_group) == (4, 64)


# ------------------------------------------------------------ other ways to write a directory


@pytest.mark.parametrize("kind", ["F16", "BF16"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_16_bits(checkpoint: Checkpoint, family: str, kind: str) -> None:
    directory = checkpoint(family)
    tensors = load_file(directory / "model.safetensors")
    rounded = {name: _read_back(tensor, kind) for name, tensor in tensors.items()}
    expected = _logits(_edit(directory, rounded))
    found = _logits(_edit(directory, tensors, kind))
    assert np.array_equal(found, expected)


def test_bfloat16_weights_are_the_nearest() -> None:
    from core_openvino.weights import bfloat16

    values = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    values[0, :6] = 1 + 2**-8, 1 + 3 * 2**-8, -np.inf, 0.0, 3.38e38, 2**-133
    rounded = (bfloat16(values).data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    assert rounded[0, :4].tolist() == [1.0, 1 + 2**-6, -np.inf, 0.0]  # ties to even
    assert np.isfinite(rounded[0, 4:6]).all()
    assert np.abs(rounded[1:] / values[1:] - 1).max() <= 2**-8


def test_bfloat16_weights_stay_nan() -> None:
    from core_openvino.weights import bfloat16

    bits = [[0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FFFE000]]  # the last one is float16's 0x7FFF
    values = np.array(bits, np.uint32).view(np.float32)
    rounded = (bfloat16(values).data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    assert np.isnan(rounded).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["layers.0.self_attn.q_proj", "layers.1.input_layernorm", "norm"])
def test_int8_refuses_weights_that_it_would_hide(
    checkpoint: Checkpoint, name: str, value: float
) -> None:
    skip_without_instructions("int8")
    directory = checkpoint()
    tensors = load_file(directory / "model.safetensors")
    tensors[f"model.{name}.weight"][..., 3] = value
    _edit(directory, tensors)
    with pytest.raises(core.InvalidModelError, match=f"model.{name}.weight .* NaN or infinite"):
        core.load_model(directory, backend="openvino", options={"dtype": "int8"})


@pytest.mark.parametrize("family", PACKED_FAMILIES)
def test_shards_prefixes_and_a_head_that_is_stored_twice(
    checkpoint: Checkpoint, family: str
) -> None:
    directory = checkpoint(family, tie_word_embeddings=True)
    expected, tensors = _logits(directory), load_file(directory / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    (directory / "model.safetensors").unlink()
    names, index = sorted(tensors), dict[str, str]()
    for shard in range(3):
        file = f"model-{shard + 1:05}-of-00003.safetensors"
        own = {f"language_model.{name}": tensors[name] for name in names[shard::3]}
        _save(own, directory / file)
        index |= dict.fromkeys(own, file)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert np.array_equal(_logits(directory), expected)


# ------------------------------------------------------------ GGUF files


def _directory_of(file: TinyGguf, directory: Path) -> Path:
    """Write the directory that a file was made from; without a tokenizer."""
    directory.mkdir()
    source = GgufSource(file.write(directory / "source.gguf"), LOAD)
    (directory / "config.json").write_text(json.dumps(hf_config(source, "float32")))
    _save(dict(file.hf), directory / "model.safetensors")
    return directory


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_a_file_equals_the_directory_it_was_made_from(
    architecture: str, tied: bool, tmp_path: Path
) -> None:
    file = tiny_gguf(architecture, tied=tied)
    path = file.write(tmp_path / "m.gguf")
    expected = _logits(_directory_of(file, tmp_path / "directory"))
    with core.load_model(path, backend="openvino", options=EXACT) as model:
        session = model._loaded.session  # type: ignore[attr-defined]
        found = model._owner.run(lambda: last_logits(session, PROMPTS))  # type: ignore[attr-defined]
        assert model.batch_generate(["ab"], max_tokens=3)[0].error is None
    assert_equal_rows(found / np.abs(expected).max(), expected / np.abs(expected).max())


QUANTISED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16"]


@pytest.mark.parametrize("kind", QUANTISED)
def test_quantised_files_equal_their_dequantised_weights(kind: str, tmp_path: Path) -> None:
    packed, dense, number = tiny_gguf(), tiny_gguf(), GGMLQuantizationType[kind]
    for name, array in dense.tensors.items():
        if array.ndim == 2:
            packed.quantized[name] = number
            dense.tensors[name] = dequantize(quantize(array, number), number)
    rows = []
    for file in (packed, dense):
        path = file.write(tmp_path / "m.gguf")
        with core.load_model(path, backend="openvino", options=EXACT) as model:
            [row] = model.classify(["ab a"], return_logits=True)
            rows.append(np.array(row.logits))
    assert distance(*rows) < 1e-4


def test_the_directory_of_a_conversion_gives_the_same_tokens(
    smollm2_gguf: Path, smollm2_dir: Path
) -> None:
    answers = []
    for path in (smollm2_gguf, smollm2_dir):
        with core.load_model(path, backend="openvino", context_len=256, options=EXACT) as model:
            prompt = "The capital of France is"
            [row] = model.classify([prompt], return_logits=True)
            tokens = [token.id for token in model.generate(prompt, max_tokens=8)]
            ids = cast("core.Tokenizing", model).encode(prompt)
            answers.append((ids, tokens, np.array(row.logits)))
    assert answers[0][:2] == answers[1][:2]
    assert distance(answers[0][2], answers[1][2]) < 1e-3


@pytest.mark.parametrize("architecture", ["gpt17", "qwen2moe", "llama4"])
def test_other_architectures_are_refused_by_name(architecture: str, tmp_path: Path) -> None:
    file = tiny_gguf()
    file.architecture = architecture
    path = file.write(tmp_path / "m.gguf")
    assert architecture in (OpenVino().refusal(path) or "")
    with pytest.raises(core.ModelError, match=architecture):
        core.load_model(path, backend="openvino")


def test_other_families_are_refused_by_name(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    _edit(directory, load_file(directory / "model.safetensors"), model_type="mixtral")
    assert "mixtral" in (OpenVino().refusal(directory) or "")
    with pytest.raises(core.UnsupportedModelError, match="mixtral"):
        core.load_model(directory, backend="openvino")


def test_no_model_is_refused(tmp_path: Path) -> None:
    assert OpenVino().refusal(tmp_path / "nothing")
    with pytest.raises(core.ModelNotFoundError):
        core.load_model(tmp_path / "nothing", backend="openvino")
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(8))
    assert OpenVino().refusal(tmp_path / "m.gguf")
    with pytest.raises(core.InvalidModelError):
        core.load_model(tmp_path / "m.gguf", backend="openvino")


def test_every_family_is_tested() -> None:
    assert set(PACKED_FAMILIES) == set(FAMILIES)


def test_a_head_beside_a_tied_embedding_counts_in_the_estimate(checkpoint: Checkpoint) -> None:
    directory = checkpoint(tie_word_embeddings=True)
    tensors = load_file(directory / "model.safetensors")
    with core.load_model(directory, backend="openvino", options={"n_threads": 1}) as model:
        tied = cast("LoadedModel", cast("OpenVinoModel", model)._loaded).weight_bytes
    head = tensors["model.embed_tokens.weight"] * 2
    _edit(directory, {**tensors, "lm_head.weight": head})
    with core.load_model(directory, backend="openvino", options={"n_threads": 1}) as model:
        untied = cast("LoadedModel", cast("OpenVinoModel", model)._loaded).weight_bytes
    assert untied == tied + head.nbytes
