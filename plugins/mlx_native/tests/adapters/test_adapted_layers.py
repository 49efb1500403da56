"""A network with an adapter, against a network whose weights are those that it comes to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

import core
from core_mlx_native.adapters.apply import (
    MODULES,
    Adapter,
    LoraSettings,
    attach,
    layer_names,
    linear_at,
    modules_of,
    new_adapter,
    scale_of,
    twin,
)
from core_mlx_native.adapters.layers import Dropout, LoRALinear, LowRank
from core_mlx_native.adapters.layers import merged as merged_weight
from core_mlx_native.chosen import FastPaths
from core_mlx_native.cpu import ops as cpu_ops
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.decode.kv_cache import BatchCache, CacheShape
from core_mlx_native.loaded import load_decoder
from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.ops import Ops
from core_mlx_native.network.prefill import NO_PREFIX, prefill, read, run_prefix
from runtime.tests.tiny import FAMILIES, Checkpoint

TOLERANCE = 1e-5  # times the largest logit
VISIBLE = 1e-2
LENGTHS = (3, 9, 14)  # windows are of 8
DEVICES = {
    "numpy": lambda: CpuOps(with_numpy=True, few_tokens=True),
    "cpu": CpuOps,
    "gpu": Ops,
}


# Every family where most is computed otherwise, and some on the other devices.
CASES = [
    *((family, "numpy", False) for family in FAMILIES),
    *((family, "numpy", True) for family in ("qwen2", "gemma3")),
    *((family, device, False) for family in ("llama", "gemma2") for device in ("cpu", "gpu")),
    *(("qwen3", device, True) for device in ("cpu", "gpu")),
]


@pytest.fixture(autouse=True)
def numpy_for_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_ops, "_WORTH_NUMPY", 1)


def draws(decoder: Decoder, names: list[str], *, dora: bool = False) -> dict[str, LowRank]:
    """Adapters of different ranks and scales, large enough to show."""
    made: dict[str, LowRank] = {}
    for number, name in enumerate(names):
        keys = mx.random.split(mx.random.key(number), 3)
        rank = 1 + number % 3
        out, inner = linear_at(decoder, name).matrix.shape
        a = mx.random.normal((inner, rank), scale=0.2, key=keys[0])
        b = mx.random.normal((rank, out), scale=0.2, key=keys[1])
        magnitude = mx.random.uniform(0.5, 2, (out,), key=keys[2]) if dora else None
        made[name] = LowRank(a, b, 0.5 + number % 2, magnitude)
    return made


def merged(directory: Path, target: Path, adapter: Adapter, **options: Any) -> Decoder:
    """The network of a directory whose weights are those that the adapter comes to."""
    target.mkdir()
    tensors = mx.load(str(directory / "model.safetensors"))
    assert isinstance(tensors, dict)
    for name, layer in adapter.layers.items():
        tensors[f"{name}.weight"] = merged_weight(layer.linear.matrix.dense(), layer.low_rank)
    mx.save_safetensors(str(target / "model.safetensors"), tensors)
    (target / "config.json").write_bytes((directory / "config.json").read_bytes())
    return load_decoder(target, **options)


def passes(decoder: Decoder) -> list[mx.array]:
    """The logits of every way through the network: prefill, read, prefixes, decode steps."""
    prompts = [[7] * 5 + list(range(3, 3 + length)) for length in LENGTHS]
    ends = [len(prompt) - 1 for prompt in prompts]
    found = [decoder.logits(prefill(decoder, prompts).hidden_at(ends))]

    paths = FastPaths()
    for prefix in (NO_PREFIX, run_prefix(decoder, prompts[0][:5], paths)):
        places = [(end, end - 2) for end in ends]
        found.append(
            decoder.logits(read(decoder, prompts, places, prefix, paths).hidden_of(places))
        )
        last = [(end,) for end in ends]
        hidden = read(decoder, prompts, last, prefix, paths).hidden_of(last)
        found.append(decoder.logits_of(hidden, mx.array([3, 9, 40])))

    config = decoder.config
    windows = tuple(kind.window for kind in config.layers)
    shape = CacheShape(windows, config.num_kv_heads, config.head_dim, mx.float32, chunk=8)
    cache = BatchCache(shape, len(LENGTHS))
    tokens = mx.random.randint(3, 60, (len(LENGTHS), max(LENGTHS)), key=mx.random.key(1))
    hidden, _ = decoder(tokens, cache.begin(max(LENGTHS), LENGTHS), cache.layers)
    for step in range(3):
        found.append(decoder.logits(hidden[:, -1]))
        fed = mx.array([[5 + step], [6 + step], [7 + step]])
        hidden, _ = decoder(fed, cache.begin(), cache.layers)
    mx.eval(found)
    return found


def held(decoder: Decoder) -> list[tuple[str, int]]:
    """The names of all arrays, and which they are."""
    module: Any = decoder
    arrays: Any = tree_flatten(module.parameters(), destination={})
    return [(name, id(array)) for name, array in arrays.items()]


def list_modules(decoder: Decoder) -> list[object]:
    module: Any = decoder
    return list(module.modules())


def difference(ones: list[mx.array], others: list[mx.array]) -> float:
    """The largest difference, in units of the largest number."""
    assert len(ones) == len(others) > 0
    return max(
        float(mx.abs(one - other).max() / mx.abs(other).max())
        for one, other in zip(ones, others, strict=True)
    )


@pytest.mark.parametrize(("family", "device", "dora"), CASES)
def test_every_pass_is_that_of_the_merged_weights(
    family: str, device: str, dora: bool, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    directory, ops = checkpoint(family), DEVICES[device]()
    decoder = load_decoder(directory, ops=ops)
    plain = passes(decoder)
    names = layer_names(len(decoder.layers), ["all-linear"])

    adapter = attach(decoder, draws(decoder, names, dora=dora))
    moving = passes(decoder)
    adapter.settle()
    settled = passes(decoder)

    wanted = passes(merged(directory, tmp_path / "merged", adapter, ops=DEVICES[device]()))
    assert difference(plain, wanted) > VISIBLE
    assert difference(moving, wanted) < TOLERANCE
    assert difference(settled, wanted) < TOLERANCE


@pytest.mark.parametrize("target", MODULES)
def test_one_map_alone_can_have_an_adapter(
    target: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """Queries, keys and values are one product, whichever of them has one."""
    directory = checkpoint("qwen2")  # with biases
    decoder = load_decoder(directory, ops=DEVICES["numpy"]())
    names = layer_names(len(decoder.layers), [target], 1)
    assert len(names) == 1
    adapter = attach(decoder, draws(decoder, names, dora=True))
    adapter.settle()
    other = merged(directory, tmp_path / "merged", adapter, ops=DEVICES["numpy"]())
    assert difference(passes(decoder), passes(other)) < TOLERANCE


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_packed_weights_have_adapters(dora: bool, checkpoint: Checkpoint, tmp_path: Path) -> None:
    directory = checkpoint("llama", hidden_size=64, intermediate_size=64)
    plain = load_decoder(directory)
    packed = pack(directory, tmp_path / "packed")
    decoder = load_decoder(packed, dequantize=False)
    names = layer_names(len(plain.layers), ["q_proj", "down_proj"])
    adapter = attach(decoder, draws(decoder, names, dora=dora))
    adapter.settle()

    dense = attach(other := load_decoder(packed), draws(decoder, names, dora=dora))
    dense.settle()
    assert difference(passes(decoder), passes(other)) < 1e-4


def pack(directory: Path, target: Path) -> Path:
    """The same model in 8 bits."""
    target.mkdir()
    tensors = mx.load(str(directory / "model.safetensors"))
    assert isinstance(tensors, dict)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weight, scales, biases = mx.quantize(tensors[name], 32, 8)
        stem = name.removesuffix(".weight")
        tensors |= {name: weight, f"{stem}.scales": scales, f"{stem}.biases": biases}
    mx.save_safetensors(str(target / "model.safetensors"), tensors)
    config = json.loads((directory / "config.json").read_text())
    config["quantization"] = {"bits": 8, "group_size": 32}
    (target / "config.json").write_text(json.dumps(config))
    return target


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_a_new_adapter_changes_nothing(dora: bool, checkpoint: Checkpoint) -> None:
    decoder = load_decoder(checkpoint("gemma3"), ops=DEVICES["numpy"]())
    plain = passes(decoder)
    adapter = new_adapter(decoder, LoraSettings(dora=dora, seed=5))
    assert difference(passes(decoder), plain) < TOLERANCE
    adapter.settle()
    assert difference(passes(decoder), plain) < TOLERANCE


def test_removed_it_leaves_the_network_as_it_was(checkpoint: Checkpoint) -> None:
    decoder = load_decoder(checkpoint("qwen3"), ops=DEVICES["numpy"]())
    before = held(decoder)
    plain = passes(decoder)
    adapter = attach(decoder, draws(decoder, layer_names(2, ["all-linear"])))
    adapter.settle()
    assert difference(passes(decoder), plain) > VISIBLE

    adapter.remove()
    assert held(decoder) == before
    assert difference(passes(decoder), plain) == 0
    assert not any(isinstance(module, LoRALinear) for module in list_modules(decoder))


def test_a_twin_has_an_adapter_of_its_own(checkpoint: Checkpoint) -> None:
    decoder = load_decoder(checkpoint("llama"), ops=DEVICES["numpy"]())
    plain, names = passes(decoder), layer_names(2, ["all-linear"])
    before = mx.get_active_memory()
    other = twin(decoder)
    assert mx.get_active_memory() - before < 1e4, "a twin shares the weights"

    adapter = attach(other, draws(decoder, names))
    adapter.settle()
    assert difference(passes(other), plain) > VISIBLE
    assert difference(passes(decoder), plain) == 0

    moved = twin(decoder, Ops())
    assert moved.ops is not decoder.ops
    assert difference(passes(moved), plain) < TOLERANCE


def test_parameters_have_one_order_and_names_of_mlx_lm(checkpoint: Checkpoint) -> None:
    decoder = load_decoder(checkpoint("llama"))
    adapter = new_adapter(decoder, LoraSettings(targets=("v_proj", "q_proj"), num_layers=1, rank=3))
    shapes = {name: array.shape for name, array in adapter.parameters().items()}
    assert list(shapes.items()) == [
        ("model.layers.1.self_attn.q_proj.lora_a", (32, 3)),
        ("model.layers.1.self_attn.q_proj.lora_b", (3, 32)),
        ("model.layers.1.self_attn.v_proj.lora_a", (32, 3)),
        ("model.layers.1.self_attn.v_proj.lora_b", (3, 16)),
    ]
    module: Any = decoder
    trained: Any = list(tree_flatten(module.trainable_parameters(), destination={}))
    assert len(trained) == 4
    assert all(name.rpartition(".")[2] in ("lora_a", "lora_b") for name in trained)


def test_what_a_begins_with_is_a_function_of_the_seed(checkpoint: Checkpoint) -> None:
    decoder = load_decoder(checkpoint("llama", hidden_size=512, intermediate_size=64))

    def begin(seed: int) -> Mapping[str, mx.array]:
        mx.random.seed(7)  # the global state has no part in it
        return new_adapter(twin(decoder), LoraSettings(seed=seed, rank=64)).parameters()

    one, again, other = begin(3), begin(3), begin(4)
    for name in one:
        assert mx.array_equal(one[name], again[name])
        if name.endswith("lora_a"):
            assert not mx.array_equal(one[name], other[name])
        else:
            assert not one[name].any()
    wide = one["model.layers.0.self_attn.q_proj.lora_a"]
    assert float(mx.std(wide)) == pytest.approx((3 * 512) ** -0.5, rel=0.03)


def test_updated_values_are_what_passes_read(checkpoint: Checkpoint) -> None:
    decoder = load_decoder(checkpoint("llama"), ops=DEVICES["numpy"]())
    adapter = attach(decoder, draws(decoder, layer_names(2, ["q_proj", "up_proj"]), dora=True))
    adapter.settle()
    before = passes(decoder)
    adapter.update({name: 2 * array for name, array in adapter.parameters().items()})
    moved = passes(decoder)
    adapter.settle()
    assert difference(moved, before) > VISIBLE
    assert difference(passes(decoder), moved) < TOLERANCE


def test_dropout_is_a_function_of_seed_step_and_layer() -> None:
    x = mx.ones((4, 50))

    def mask(seed: int, step: int, layer: int) -> mx.array:
        dropout = Dropout(0.25, seed, layers=3)
        dropout.at(step)
        return dropout(x, layer)

    assert mx.array_equal(mask(1, 2, 0), mask(1, 2, 0))
    for other in ((2, 2, 0), (1, 3, 0), (1, 2, 1)):
        assert not mx.array_equal(mask(1, 2, 0), mask(*other))
    kept = mask(1, 2, 0)
    numbers: Any = kept.reshape(-1).tolist()
    assert sorted(set(numbers)) == pytest.approx([0, 4 / 3])
    assert float((kept > 0).mean()) == pytest.approx(0.75, abs=0.1)

    off = Dropout(0.25, 1, layers=3)
    assert off(x, 0) is x
    off.at(1)
    off.at(None)
    assert off(x, 0) is x


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 0}, "an integer >= 1"),
        ({"scale": 0.0}, "> 0"),
        ({"dropout": 1.0}, "< 1"),
        ({"num_layers": 0}, "an integer >= 1"),
        ({"targets": ("c_attn",)}, "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj"),
        ({"targets": ()}, "q_proj"),
        ({"targets": ("mlp.q_proj",)}, "all-linear"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(core.InvalidOptionError, match=message):
        LoraSettings(**changes)


def test_names_mean_what_they_mean_elsewhere() -> None:
    assert modules_of("all-linear") == tuple(MODULES)
    assert modules_of(["mlp.down_proj", "q_proj"]) == ("q_proj", "down_proj")
    assert layer_names(3, ["q_proj"], 1) == ["model.layers.2.self_attn.q_proj"]
    assert layer_names(3, ["q_proj"], 9) == layer_names(3, ["q_proj"])
    assert scale_of(16, 8) == 2
    assert scale_of(16, 4, rslora=True) == 8
