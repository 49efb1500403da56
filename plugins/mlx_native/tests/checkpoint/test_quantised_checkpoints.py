"""MLX's affine quantisation against the same weights dequantised and stored plain."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

import core
from core_mlx_native.backend import Cpu

Checkpoint = Callable[..., Path]
Tensors = dict[str, mx.array]
Logits = npt.NDArray[np.float32]
# What config.json says of one layer: how it is quantised, or that it is not.
Setting = dict[str, Any] | bool

TOLERANCE = 1e-3
PROMPTS = ["ab", "abc ab no", "a" * 20 + " b no no ab"]  # the last is longer than the windows
BITS, GROUP_SIZES = (2, 3, 4, 6, 8), (32, 64, 128)
Q4 = {"bits": 4, "group_size": 64}
SIZES = {"hidden_size": 128, "intermediate_size": 128}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "mistral": {"model_type": "mistral", "sliding_window": 8},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": True},
    "gemma2": {"model_type": "gemma2", "layer_types": None, "rope_local_base_freq": None},
    "gemma3": {},
}
BOTH_WAYS = pytest.mark.parametrize("dequantize", [True, False], ids=["dequantised", "packed"])


@pytest.fixture
def plain(checkpoint: Checkpoint) -> Callable[..., Path]:
    """Writes an unquantised checkpoint whose sizes every group size divides."""

    def write(family: str = "llama", **changes: Any) -> Path:
        base = "gemma3" if "gemma" in family else "llama"
        return checkpoint(base, **{**SIZES, **FAMILIES[family], **changes})

    return write


def read_tensors(directory: Path) -> Tensors:
    tensors: Tensors = {}
    for file in sorted(directory.glob("*.safetensors")):
        loaded = mx.load(str(file))
        assert isinstance(loaded, dict)
        tensors |= loaded
    mx.eval(tensors)  # before a file that they come from is written over
    return tensors


def write_tensors(directory: Path, tensors: Tensors) -> None:
    mx.save_safetensors(str(directory / "model.safetensors"), tensors)


def edit_config(directory: Path, **changes: Any) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def quantize(
    source: Path,
    default: Mapping[str, int] = Q4,
    overrides: Mapping[str, Setting] | None = None,
    left_out: tuple[str, ...] = (),
    dtype: mx.Dtype = mx.float32,
) -> tuple[Path, Path]:
    """Two directories with the same weights: quantised, and dequantised to plain float32.

    ``overrides`` go into config.json by layer name; ``left_out`` layers stay plain and config.json
    says nothing of them. ``dtype`` is that of scales and biases.
    """
    overrides = dict(overrides or {})
    packed, dense = source.with_name("packed"), source.with_name("dense")
    shutil.copytree(source, packed)
    shutil.copytree(source, dense)
    small: Tensors = {}
    large: Tensors = {}
    for name, tensor in read_tensors(source).items():
        layer = name.removesuffix(".weight")
        setting = overrides.get(layer, layer not in left_out) and tensor.ndim == 2
        if not setting:
            small[name] = large[name] = tensor
            continue
        own = overrides.get(layer)
        options = own if isinstance(own, dict) else dict(default)
        parts = mx.quantize(tensor.astype(dtype), **options)
        for part, array in zip(("weight", "scales", "biases"), parts, strict=True):
            small[f"{layer}.{part}"] = array
        scales, biases = (part.astype(mx.float32) for part in parts[1:])
        large[name] = mx.dequantize(parts[0], scales, biases, **options)
    write_tensors(packed, small)
    write_tensors(dense, large)
    said = {**default, **overrides}
    edit_config(packed, quantization=said, quantization_config=said)  # mlx-lm writes both
    return packed, dense


def load(directory: Path, **options: Any) -> core.TextModel:
    return Cpu().load_model(directory, core.LoadConfig(options=options))


def logits_of(directory: Path, **options: Any) -> Logits:
    """Float32 [prompts, vocabulary]."""
    with load(directory, **options) as model:
        results = model.classify(PROMPTS, return_logits=True)
    assert [result.error for result in results] == [None] * len(PROMPTS)
    return np.stack([np.asarray(result.logits, np.float32) for result in results])


def distance(left: Logits, right: Logits) -> float:
    assert left.shape == right.shape
    return float(np.abs(left - right).max())


def shard(directory: Path) -> None:
    """Split the weights so that a layer's weight, scales and biases lie in different files."""
    tensors = read_tensors(directory)
    (directory / "model.safetensors").unlink()
    weight_map: dict[str, str] = {}
    for number in range(3):
        held = sorted(tensors)[number::3]
        file = f"model-{number + 1:05}-of-00003.safetensors"
        mx.save_safetensors(str(directory / file), {name: tensors[name] for name in held})
        weight_map |= dict.fromkeys(held, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


# ------------------------------------------------------------ what loads


@BOTH_WAYS
@pytest.mark.parametrize("group_size", GROUP_SIZES)
@pytest.mark.parametrize("bits", BITS)
def test_every_width_and_group_size(
    plain: Checkpoint, bits: int, group_size: int, dequantize: bool
) -> None:
    source = plain()
    packed, dense = quantize(source, {"bits": bits, "group_size": group_size})
    logits = logits_of(packed, dequantize=dequantize)
    assert distance(logits, logits_of(dense)) < TOLERANCE
    # The comparison can tell: rounding to these bits is visible.
    assert distance(logits, logits_of(source)) > 10 * TOLERANCE


@BOTH_WAYS
@pytest.mark.parametrize("group_size", [16, 48, 96, 192])
def test_a_group_size_that_mlx_has_no_code_for(
    plain: Checkpoint, group_size: int, dequantize: bool
) -> None:
    source = plain(hidden_size=192, intermediate_size=192)
    packed, dense = quantize(source, {"bits": 4, "group_size": 32})
    small, large = read_tensors(packed), read_tensors(dense)
    dice = np.random.default_rng(0)
    for layer in [name.removesuffix(".scales") for name in small if name.endswith(".scales")]:
        words = np.array(small[f"{layer}.weight"])
        integers = (words[..., None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15  # low bits first
        grouped = integers.reshape(len(words), -1, group_size).astype(np.float32)
        scales = dice.uniform(0.01, 0.05, grouped.shape[:2]).astype(np.float32)
        biases = dice.uniform(-0.5, -0.1, grouped.shape[:2]).astype(np.float32)
        values = grouped * scales[..., None] + biases[..., None]
        small |= {f"{layer}.scales": mx.array(scales), f"{layer}.biases": mx.array(biases)}
        large[f"{layer}.weight"] = mx.array(values.reshape(len(words), -1))
    write_tensors(packed, small)
    write_tensors(dense, large)
    edit_config(packed, quantization={"bits": 4, "group_size": group_size})
    assert distance(logits_of(packed, dequantize=dequantize), logits_of(dense)) < TOLERANCE


@BOTH_WAYS
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(plain: Checkpoint, family: str, dequantize: bool) -> None:
    packed, dense = quantize(plain(family))
    assert distance(logits_of(packed, dequantize=dequantize), logits_of(dense)) < TOLERANCE


@BOTH_WAYS
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=["bfloat16", "float16"])
def test_scales_of_low_precision_lose_nothing_more(
    plain: Checkpoint, dtype: mx.Dtype, dequantize: bool
) -> None:
    packed, dense = quantize(plain(), dtype=dtype)
    assert distance(logits_of(packed, dequantize=dequantize), logits_of(dense)) < TOLERANCE


MIXED: dict[str, Setting] = {
    "model.layers.0.mlp.down_proj": {"group_size": 32, "bits": 8},
    "model.layers.1.self_attn.q_proj": {"group_size": 128, "bits": 2},
    "model.layers.1.mlp.up_proj": False,
    "model.layers.0.self_attn.o_proj": True,  # the default, spelled out
}


@BOTH_WAYS
@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize(
    ("overrides", "left_out"),
    [
        (MIXED, ()),
        ({**MIXED, "lm_head": False}, ()),
        ({**MIXED, "model.embed_tokens": False}, ()),
        ({"model.embed_tokens": {"group_size": 32, "bits": 6}}, ()),
        ({}, ("model.embed_tokens", "lm_head", "model.layers.0.mlp.gate_proj")),
    ],
    ids=["some", "plain-head", "plain-embedding", "wide-embedding", "unmentioned"],
)
def test_mixed_layers(
    plain: Checkpoint,
    family: str,
    overrides: Mapping[str, Setting],
    left_out: tuple[str, ...],
    dequantize: bool,
) -> None:
    packed, dense = quantize(plain(family), Q4, overrides, left_out)
    assert distance(logits_of(packed, dequantize=dequantize), logits_of(dense)) < TOLERANCE


@BOTH_WAYS
def test_sharded(plain: Checkpoint, dequantize: bool) -> None:
    packed, dense = quantize(plain(), Q4, MIXED)
    shard(packed)
    assert distance(logits_of(packed, dequantize=dequantize), logits_of(dense)) < TOLERANCE


@BOTH_WAYS
def test_prefixed_names_in_tensors_and_config(plain: Checkpoint, dequantize: bool) -> None:
    packed, dense = quantize(plain("gemma3"), Q4, MIXED)
    tensors = read_tensors(packed)
    write_tensors(packed, {f"language_model.{name}": tensors[name] for name in tensors})
    prefixed = {f"language_model.{name}": setting for name, setting in MIXED.items()}
    edit_config(packed, quantization={**Q4, **prefixed}, quantization_config=None)
    assert distance(logits_of(packed, dequantize=dequantize), logits_of(dense)) < TOLERANCE


def test_both_ways_are_the_same_model(plain: Checkpoint) -> None:
    packed, _ = quantize(plain(), Q4, MIXED)
    both = [logits_of(packed, dequantize=way) for way in (True, False)]
    assert distance(*both) < TOLERANCE


def test_a_plain_checkpoint_takes_the_option_too(plain: Checkpoint) -> None:
    source = plain()
    assert distance(logits_of(source, dequantize=False), logits_of(source)) == 0


def test_info_and_choices_tell(plain: Checkpoint) -> None:
    packed, _ = quantize(plain(), {"bits": 6, "group_size": 32}, MIXED)
    with load(packed) as model:
        assert (model.info.quant_bits, model.info.quant_group) == (6, 32)
        assert isinstance(model, core.Explaining)
        choices = {choice.name: choice.value for choice in model.choices()}
    assert choices["dequantize"] == "True"  # the CPU's kernels for packed weights are slow


def test_packed_weights_take_less_memory(plain: Checkpoint) -> None:
    packed, _ = quantize(plain())

    def bytes_held(dequantize: bool) -> int:
        before = mx.get_active_memory()
        with load(packed, dequantize=dequantize):
            return mx.get_active_memory() - before

    assert bytes_held(False) < bytes_held(True) / 3


# ------------------------------------------------------------ what does not


@BOTH_WAYS
@pytest.mark.parametrize(
    "lie",
    [
        {"bits": 8},
        {"bits": 2},
        {"group_size": 32},
        {"group_size": 128},
        {"bits": 5},
        {"bits": 1},
        {"bits": 16},
        {"bits": 0},
        {"bits": "4"},
        {"group_size": 48},
        {"group_size": -64},
        {"group_size": 2**40},
        {"model.layers.0.mlp.down_proj": {"group_size": 64, "bits": 8}},
        {"model.layers.0.mlp.down_proj": {"group_size": 32, "bits": 4}},
        {"model.layers.0.mlp.down_proj": {"bits": -4, "group_size": 64}},
        {"model.layers.0.mlp.down_proj": "no"},
        {"model.layers.0.mlp.down_proj": 4},
        {"model.layers.0.mlp.down_proj": False},  # and the tensors are there
    ],
    ids=str,
)
def test_a_lie_in_the_config_is_an_invalid_model(
    plain: Checkpoint, lie: dict[str, Any], dequantize: bool
) -> None:
    packed, _ = quantize(plain())
    edit_config(packed, quantization={**Q4, **lie}, quantization_config=None)
    with pytest.raises(core.InvalidModelError):
        load(packed, dequantize=dequantize)


@BOTH_WAYS
@pytest.mark.parametrize("part", ["scales", "biases"])
def test_missing_parts_are_listed(plain: Checkpoint, part: str, dequantize: bool) -> None:
    packed, _ = quantize(plain())
    gone = [f"model.layers.{index}.mlp.up_proj.{part}" for index in range(2)]
    tensors = read_tensors(packed)
    write_tensors(packed, {name: tensors[name] for name in tensors if name not in gone})
    with pytest.raises(core.InvalidModelError) as caught:
        load(packed, dequantize=dequantize)
    assert all(name in str(caught.value) for name in gone)


def test_missing_scales_of_a_layer_that_the_config_names(plain: Checkpoint) -> None:
    packed, _ = quantize(plain(), Q4, MIXED)
    gone = "model.layers.0.mlp.down_proj.scales"
    tensors = read_tensors(packed)
    del tensors[gone]
    write_tensors(packed, tensors)
    with pytest.raises(core.InvalidModelError, match=gone):
        load(packed)


def test_packed_tensors_without_a_word_in_the_config(plain: Checkpoint) -> None:
    packed, _ = quantize(plain())
    edit_config(packed, quantization=None, quantization_config=None)
    with pytest.raises(core.InvalidModelError, match=r"model\.embed_tokens"):
        load(packed)


@pytest.mark.parametrize("value", ["yes", 1, 0.5])
def test_the_option_is_a_truth_value(plain: Checkpoint, value: object) -> None:
    packed, _ = quantize(plain())
    with pytest.raises(core.InvalidOptionError, match="dequantize"):
        load(packed, dequantize=value)
