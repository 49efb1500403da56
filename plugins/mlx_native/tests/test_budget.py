"""How many tokens run together."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest

import core
from core_mlx_native import classify, classify_pass, devices
from core_mlx_native.backend import Cpu
from core_mlx_native.budget import Footprint, pass_tokens, token_budget
from core_mlx_native.config import load_config

NONE = core.LoadConfig()
GB = 10**9
FOOTPRINT = Footprint(token=100_000, row=3_000_000)


@pytest.mark.parametrize(
    ("on_gpu", "free", "tokens", "why"),
    [
        (False, 20 * GB, "1024", "do not run faster on a CPU"),
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
    choice = token_budget(NONE, FOOTPRINT, on_gpu, free)
    assert (choice.name, choice.value) == ("token_budget", tokens)
    assert why in choice.reason


def test_many_cores_have_enough_tokens_each() -> None:
    values = [token_budget(NONE, FOOTPRINT, False, 20 * GB, lanes).value for lanes in (1, 2, 8)]
    assert values == ["1024", "1024", "4096"]


def test_the_option_wins() -> None:
    asked = core.LoadConfig(options={"token_budget": 77})
    assert token_budget(asked, FOOTPRINT, True, 1) == core.Choice("token_budget", "77", "asked for")


def test_the_free_memory_of_a_cpu_is_what_this_process_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(devices, "available_bytes", lambda: 7)
    assert devices.free_memory(on_gpu=False) == 7


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize(("physical", "free"), [(18, 9), (None, None)])
def test_on_a_mac_half_of_its_memory_counts_as_free(
    on_gpu: bool, physical: int | None, free: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(devices, "physical_bytes", lambda: physical)
    assert devices.free_memory(on_gpu) == free


def test_the_footprint_of_a_model(checkpoint: Callable[..., Path]) -> None:
    config = load_config(checkpoint())
    wide, half = Footprint.of(config, mx.float32), Footprint.of(config, mx.bfloat16)
    per_layer = 2 * config.num_kv_heads * config.head_dim
    numbers = 8 * config.hidden_size + 3 * config.intermediate_size + config.num_layers * per_layer
    assert (wide.token, half.token) == (4 * numbers, 2 * numbers)
    assert wide.row == half.row == 12 * config.vocab_size


def test_rows_of_few_tokens_are_bounded_by_their_logits(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = classify_pass.start

    def watched(model: object, rows: list[object], *rest: object) -> object:
        sizes.append(len(rows))
        return real(model, rows, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(classify, "start", watched)
    config = core.LoadConfig(options={"token_budget": 100, "without": ["prefix"]})
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
