"""The backend as the registry sees it, the options of a load, and a processor's instructions."""

from __future__ import annotations

import importlib.util
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest

import core
from core_openvino import availability, loaded
from core_openvino.backend import OpenVino
from core_openvino.chosen import Choices, chosen_dtype
from core_runtime.machine import usable_cores
from plugins.openvino.tests.passes import skip_without_instructions
from runtime.tests.tiny import Checkpoint

EXTENSIONS = {
    core.Capability.TOKENIZING: core.Tokenizing,
    core.Capability.SUBMITTING: core.Submitting,
    core.Capability.BATCH_STREAMING: core.BatchStreaming,
    core.Capability.CLASSIFY_STREAMING: core.ClassifyStreaming,
    core.Capability.SCORING: core.Scoring,
    core.Capability.TOKEN_PROMPTS: core.TokenPrompts,
    core.Capability.HIDDEN_STATES: core.HiddenStates,
    core.Capability.ATTENTION_INSPECTOR: core.AttentionInspector,
    core.Capability.MEMORY_REPORTING: core.MemoryReporting,
    core.Capability.TRAINABLE: core.Trainable,
    core.Capability.EXPLAINING: core.Explaining,
    core.Capability.ADAPTING: core.Adapting,
}
PLAIN = frozenset({"sse2", "avx2", "avx512f"})
ZEN4 = PLAIN | {"avx512_bf16", "avx512_vnni"}
CASCADE_LAKE = PLAIN | {"avx512_vnni"}
ALDER_LAKE = PLAIN | {"avx_vnni"}
SAPPHIRE_RAPIDS = ZEN4 | {"amx_tile", "amx_bf16", "amx_int8"}
GRAVITON3 = frozenset({"asimd", "bf16", "i8mm"})


def test_it_keeps_the_protocol() -> None:
    [point] = entry_points(group="core.backends", name="openvino")
    assert point.load() is OpenVino
    backend = OpenVino()
    assert isinstance(backend, core.Backend)
    assert isinstance(backend, core.ModelProbe)
    assert isinstance(backend, core.DeviceReporting)
    assert backend.protocol == core.PROTOCOL_VERSION
    assert backend.unavailable_reason() is None
    [device] = backend.devices()
    assert (device.kind, bool(device.name), bool(device.detail)) == ("cpu", True, True)


def test_declared_capabilities_are_those_of_the_model(checkpoint: Checkpoint) -> None:
    backend = OpenVino()
    with backend.load_model(checkpoint(), core.LoadConfig()) as model:
        for capability, protocol in EXTENSIONS.items():
            assert isinstance(model, protocol) == (capability in backend.capabilities), capability


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gpu_layers": 5}, core.UnsupportedOptionError, "leave gpu_layers at -1 or 0"),
        ({"context_len": 65}, core.InvalidOptionError, "at most 64"),
        ({"adapter_path": "x"}, core.UnsupportedOptionError, "adapter_path"),
        ({"context_overflow": "rotate"}, core.UnsupportedOptionError, "context_overflow"),
        ({"options": {"device": "GPU"}}, core.UnsupportedOptionError, "'GPU' has not been run"),
        ({"options": {"device": "NPU"}}, core.UnsupportedOptionError, "'NPU' has not been run"),
        ({"options": {"dtpye": "int8"}}, core.InvalidOptionError, "dtype, n_batch, n_threads"),
        ({"options": {"dtype": "float16"}}, core.InvalidOptionError, "'float32', 'bfloat16'"),
        ({"options": {"n_threads": 0}}, core.InvalidOptionError, "n_threads=0"),
        ({"options": {"n_threads": 1025}}, core.InvalidOptionError, "n_threads=1025"),
        ({"options": {"n_threads": "2"}}, core.InvalidOptionError, "n_threads='2'"),
        ({"options": {"n_batch": 31}}, core.InvalidOptionError, "n_batch=31"),
        ({"options": {"prefix_cache": -1}}, core.InvalidOptionError, "prefix_cache=-1"),
        ({"options": {"weight_cache": -1}}, core.InvalidOptionError, "weight_cache=-1"),
        ({"options": {"cache_cells": 0}}, core.InvalidOptionError, "cache_cells=0"),
        ({"parallel_slots": 193}, core.InvalidOptionError, "at most 192"),
        ({"parallel_slots": 100, "options": {"n_batch": 99}}, core.InvalidOptionError, "n_batch"),
    ],
)
def test_a_load_option_that_cannot_be_honoured_is_refused(
    checkpoint: Checkpoint, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        core.load_model(checkpoint(), backend="openvino", **options)


@pytest.mark.parametrize("layers", [-1, 0])
def test_no_layers_on_a_gpu(checkpoint: Checkpoint, layers: int) -> None:
    options = {"device": "CPU"}
    with core.load_model(
        checkpoint(), backend="openvino", gpu_layers=layers, options=options
    ) as model:
        assert model.classify(["ab"])[0].error is None


# ------------------------------------------------------------ the dtype


def _dtype(flags: frozenset[str], rounded: bool, dtype: str = "auto") -> core.Choice:
    return chosen_dtype(core.LoadConfig(options={"dtype": dtype}), rounded, flags).choice


@pytest.mark.parametrize(
    ("flags", "instructions"),
    [
        (ZEN4, "AVX512_BF16"),
        (SAPPHIRE_RAPIDS, "AVX512_BF16 and AMX"),
        (GRAVITON3, "ARM BF16"),
    ],
)
def test_auto_is_bfloat16_for_rounded_weights(flags: frozenset[str], instructions: str) -> None:
    choice = _dtype(flags, rounded=True)
    assert choice.value == "bfloat16"
    assert f"at most 16 bits, and the processor has {instructions}" in choice.reason
    choice = _dtype(flags, rounded=False)
    assert choice.value == "float32"
    assert "dtype='bfloat16' is faster" in choice.reason


def test_auto_is_float32_on_a_xeon_whose_amx_may_not_be_used() -> None:
    flags = ZEN4 | {"avx512_fp16"}
    choice = _dtype(flags, rounded=True)
    assert choice.value == "float32"
    assert "AMX may not be used" in choice.reason
    assert _dtype(flags, rounded=True, dtype="bfloat16").value == "bfloat16"
    assert _dtype(flags | {"amx_bf16"}, rounded=True).value == "bfloat16"


@pytest.mark.parametrize("flags", [PLAIN, CASCADE_LAKE, ALDER_LAKE, frozenset[str]()])
def test_auto_is_float32_without_instructions(flags: frozenset[str]) -> None:
    choice = _dtype(flags, rounded=True)
    assert choice.value == "float32"
    assert "no instructions for bfloat16" in choice.reason
    with pytest.raises(core.InvalidOptionError, match="none of AVX512_BF16, AMX or ARM BF16"):
        _dtype(flags, rounded=True, dtype="bfloat16")


def test_int8_needs_its_instructions() -> None:
    for flags in (ZEN4, CASCADE_LAKE, ALDER_LAKE, SAPPHIRE_RAPIDS, GRAVITON3):
        assert _dtype(flags, rounded=False, dtype="int8").value == "int8"
    with pytest.raises(core.InvalidOptionError, match="none of VNNI, AMX or ARM I8MM"):
        _dtype(PLAIN, rounded=False, dtype="int8")
    assert _dtype(PLAIN, rounded=True, dtype="float32").reason == "asked for"


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_a_load_looks_at_this_processor(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(loaded, "cpu_flags", lambda: PLAIN)
    with pytest.raises(core.InvalidOptionError, match="this processor has none of"):
        core.load_model(checkpoint(), backend="openvino", options={"dtype": dtype})


def test_choices_are_explained(checkpoint: Checkpoint) -> None:
    with OpenVino().load_model(checkpoint(), core.LoadConfig()) as model:
        choices = {choice.name: choice for choice in model.choices()}
        assert model.info.logit_tolerance == loaded.TOLERANCE["float32"]
    assert list(choices) == [
        *("backend", "device", "context_len", "cache_cells"),
        *("dtype", "parallel_slots", "n_threads", "n_batch", "prefix_cache", "weight_cache"),
        "suits",
    ]
    assert all(choice.reason for choice in choices.values())
    assert choices["dtype"].value == "float32"
    assert choices["n_threads"].value == str(usable_cores())
    assert "instructions that OpenVINO uses" in choices["device"].reason


def test_options_that_are_given_win() -> None:
    config = core.LoadConfig(parallel_slots=3, options={"n_threads": 5, "n_batch": 64})
    shown = Choices.of("openvino", config, rounded=False, flags=ZEN4).shown()
    assert [choice.value for choice in shown] == ["float32", "3", "5", "64"]
    assert {choice.reason for choice in shown[1:]} == {"asked for"}


@pytest.mark.parametrize(("dtype", "largest"), [("bfloat16", 0.1), ("int8", 0.3)])
def test_a_rounded_dtype_rounds(checkpoint: Checkpoint, dtype: str, largest: float) -> None:
    skip_without_instructions(dtype)
    directory, rows = checkpoint(), []
    for kind in ("float32", dtype):
        with core.load_model(directory, backend="openvino", options={"dtype": kind}) as model:
            [row] = model.classify(["ab no"], return_logits=True)
            rows.append(np.array(row.logits))
            assert model.info.logit_tolerance == loaded.TOLERANCE[kind]
    assert 0 < np.abs(rows[0] - rows[1]).max() < largest


# ------------------------------------------------------------ its place


def test_models_are_left_to_mlx_without_instructions(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, directory = OpenVino(), checkpoint()
    monkeypatch.setattr(availability, "cpu_flags", lambda: CASCADE_LAKE)
    assert backend.deferral() is None
    monkeypatch.setattr(availability, "cpu_flags", lambda: PLAIN)
    find_spec = importlib.util.find_spec

    def find(installed: bool) -> Any:
        def spec(name: str) -> Any:
            return installed or None if name == "core_mlx_native" else find_spec(name)

        return spec

    monkeypatch.setattr(importlib.util, "find_spec", find(installed=True))
    assert "none of AVX512_BF16, AMX and VNNI" in (backend.deferral() or "")
    assert backend.refusal(directory) is None
    monkeypatch.setattr(importlib.util, "find_spec", find(installed=False))
    assert backend.deferral() is None


def test_info_is_that_of_config_json(checkpoint: Checkpoint) -> None:
    with core.load_model(checkpoint("gemma3"), backend="openvino") as model:
        info = model.info
    assert (info.architecture, info.num_layers, info.hidden_size) == ("gemma3_text", 3, 32)
    assert (info.quant_bits, info.quant_group, info.context_length) == (0, 0, 64)


SOURCES = "Exception from src/inference/src/cpp/core.cpp:117:\n"


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (MemoryError("Unable to allocate 20.5 MiB"), core.OutOfMemoryError),
        (RuntimeError(f"{SOURCES}std::bad_alloc\n\n"), core.OutOfMemoryError),
        (RuntimeError(f"{SOURCES}Resource temporarily unavailable\n"), core.OutOfMemoryError),
        (RuntimeError(f"{SOURCES}Failed to allocate 64 bytes of memory"), core.OutOfMemoryError),
        (RuntimeError(f"{SOURCES}no such operation\n"), core.UnsupportedModelError),
    ],
    ids=str,
)
def test_failures_of_a_load_are_typed(
    checkpoint: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    error: type[core.CoreError],
) -> None:
    def failing(*_: object) -> None:
        raise raised

    monkeypatch.setattr(loaded, "open_session", failing)
    reason = str(raised).strip().splitlines()[-1]
    with pytest.raises(error, match=reason):
        core.load_model(checkpoint(), backend="openvino")
