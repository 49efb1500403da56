"""Rope periods from every spelling of config.json."""

from __future__ import annotations

import math
from typing import Any

import pytest

from core_runtime.checkpoint.fields import ConfigFields
from core_runtime.checkpoint.rope import LayerType, parse_rope

PLAIN = (1.0, 10.0, 100.0, 1000.0)  # theta 10,000 over a head of 8


def periods(config: dict[str, Any], layer: LayerType = "full_attention") -> Any:
    return pytest.approx(parse_rope(ConfigFields(config, "config.json"), layer, 8).periods)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"rope_theta": 10_000},
        {"rope_theta": 10_000.0, "rope_scaling": None},
        {"rope_theta": 10_000.0, "rope_scaling": {"rope_type": "default"}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}},
        {"rope_parameters": {"rope_theta": 10_000.0}, "rope_theta": 5.0},
        {"rope_parameters": {"full_attention": {"rope_theta": 10_000.0}}},
    ],
)
def test_unscaled(config: dict[str, Any]) -> None:
    assert periods(config) == PLAIN


@pytest.mark.parametrize(
    "scaling", [{"rope_type": "linear", "factor": 8.0}, {"type": "linear", "factor": 8}]
)
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_linear_stretches_every_period(scaling: dict[str, Any], key: str) -> None:
    assert periods({key: scaling}) == tuple(8 * period for period in PLAIN)


def test_llama3_stretches_long_wavelengths_only() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    }
    turns = 1024 / (2 * math.pi * 100.0)  # between the two factors, so in part
    smooth = (turns - 1) / 3
    part = 100.0 / ((1 - smooth) / 8 + smooth)
    assert periods({"rope_scaling": scaling}) == (1.0, 10.0, part, 8000.0)


def test_gemmas_local_layers_have_their_own_base_and_are_never_scaled() -> None:
    older = {
        "rope_theta": 1e6,
        "rope_local_base_freq": 10_000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    newer = {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        }
    }
    for config in (older, newer):
        assert periods(config, "sliding_attention") == PLAIN
        assert periods(config) == tuple(8 * 1e6 ** (2 * pair / 8) for pair in range(4))
