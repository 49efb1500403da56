"""How many tokens run together."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import core
from core_mlx_native import availability
from core_mlx_native.backend import Cpu
from core_mlx_native.chosen import Footprint, layers_in_flight, pass_tokens, token_budget
from core_mlx_native.classify.microbatch import ClassifyTask
from core_mlx_native.loaded import load
from core_runtime.checkpoint.config import load_config

NONE = core.LoadConfig()
GB = 10**9
FOOTPRINT = Footprint(token=100_000, row=3_000_000)


@pytest.mark.parametrize(
    ("on_gpu", "free", "tokens", "why"),
    [
        (False, 20 * GB, "1024", "not faster on a CPU"),
        (True, 80 * GB, "16384", "keep a GPU busy"),
        (True, 2 * GB, "5000", "a quarter of the 2.0 GB free"),
        (False, GB // 10, "250", "a quarter of the 0.1 GB free"),
        (True, 1, "64", "a quarter of the 0.0 GB free"),
        (True, 0, "64", "a quarter of the 0.0 GB free"),
        (True, None, "16384", "keep a GPU busy"),  # nobody knows
    ],
)
def test_what_the_device_likes_if_the_memory_holds_it(
    on_gpu: bool, free: int | None, tokens: str, why: str
) -> None:
    choice = token_budget(NONE, FOOTPRINT, on_gpu, free).choice
    assert (choice.name, choice.value) == ("token_budget", tokens)
    assert why in choice.reason


def test_many_cores_have_enough_tokens_each() -> None:
    values = [token_budget(NONE, FOOTPRINT, False, 20 * GB, lanes).value for lanes in (1, 2, 8)]
    assert values == [1024, 1024, 4096]


def test_the_option_wins() -> None:
    asked = core.LoadConfig(options={"token_budget": 77})
    chosen = token_budget(asked, FOOTPRINT, True, 1)
    assert chosen.choice == core.Choice("token_budget", "77", "asked for")
    assert chosen.value == 77


def test_the_free_memory_of_a_cpu_is_what_this_process_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(availability, "available_bytes", lambda: 7)
    assert availability.free_memory(on_gpu=False) == 7


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize(("physical", "free"), [(18, 9), (None, None)])
def test_on_a_mac_half_of_its_memory_counts_as_free(
    on_gpu: bool, physical: int | None, free: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(availability, "physical_bytes", lambda: physical)
    assert availability.free_memory(on_gpu) == free


def test_the_footprint_of_a_model(checkpoint: Callable[..., Path]) -> None:
    config = load_config(checkpoint())
    wide, half = Footprint.of(config, mx.float32), Footprint.of(config, mx.bfloat16)
    per_layer = 2 * config.num_kv_heads * config.head_dim
    numbers = 8 * config.hidden_size + 3 * config.intermediate_size + config.num_layers * per_layer
    assert (wide.token, half.token) == (4 * numbers, 2 * numbers)
    assert wide.row == half.row == 12 * config.vocab_size


def test_a_cuda_pass_holds_the_layers_in_flight(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemma-3-1B in bfloat16: 16,384 tokens take 17 GB on an H100, and less fits a small card."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    gemma = replace(load_config(checkpoint()), hidden_size=1152, intermediate_size=6912)
    gemma = replace(gemma, layers=gemma.layers[:1] * 26, num_kv_heads=1, head_dim=256)

    layers = layers_in_flight(gemma, on_gpu=True)
    assert layers == 17
    footprint = Footprint.of(gemma, mx.bfloat16, layers)
    assert 16384 * footprint.token == pytest.approx(17.1e9, rel=0.01)
    assert token_budget(NONE, footprint, True, 76 * GB).value == 16384

    small = token_budget(NONE, footprint, True, 10 * GB)
    assert small.value == 10 * GB // 4 // footprint.token < 2500
    assert "at an estimated 1.04 MB per token with 17 layers in flight" in small.choice.reason


def test_other_devices_hold_one_layer(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(checkpoint())
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    assert layers_in_flight(config, on_gpu=False) == 1
    assert layers_in_flight(config, on_gpu=True) == config.num_layers == 2
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert layers_in_flight(config, on_gpu=True) == 1


def test_a_load_counts_them(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr("core_mlx_native.loaded.free_memory", lambda on_gpu: 10**7)
    directory = checkpoint()
    reasons = [
        next(each.reason for each in model.choices if each.name == "token_budget")
        for model in (load(directory, NONE, on_gpu) for on_gpu in (True, False))
    ]
    assert "with 2 layers in flight" in reasons[0]
    assert "in flight" not in reasons[1]


def test_rows_of_few_tokens_are_bounded_by_their_logits(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = ClassifyTask.queue

    def watched(self: ClassifyTask, rows: list[Any], *rest: Any) -> object:
        sizes.append(len(rows))
        return real(self, rows, *rest)

    monkeypatch.setattr(ClassifyTask, "queue", watched)
    config = core.LoadConfig(options={"token_budget": 100, "without": ["equal_rows", "prefix"]})
    with Cpu().load_model(checkpoint(), config) as model:
        weight = model._loaded.row_tokens
        model.classify(["a"] * 300)
        assert max(sizes) == 100 // max(weight, 1)
        sizes.clear()
        model.classify(["a"] * 300, labels=["b", "c"], labels_only=True)
        assert max(sizes) == 100


def test_what_a_prefix_has_to_save(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting kernels takes a CUDA GPU as long for a narrow layer as for a wide one."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    tiny = load_config(checkpoint())
    wide = replace(tiny, hidden_size=1152, intermediate_size=6912)
    wide = replace(wide, num_heads=4, num_kv_heads=1, head_dim=256)
    assert 4000 < pass_tokens(wide, on_gpu=True) < 4200
    assert pass_tokens(tiny, on_gpu=True) > 100_000
    assert pass_tokens(replace(wide, intermediate_size=10**6), on_gpu=True) == 32
    assert pass_tokens(wide, on_gpu=False) == 32
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert pass_tokens(wide, on_gpu=True) == 32
