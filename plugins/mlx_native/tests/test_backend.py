"""The backends as the registry sees them, and the options of a load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_native import availability
from core_mlx_native.availability import MachineFacts
from core_mlx_native.backend import Cpu, Cuda, Metal, MlxBackend
from core_runtime.choices import suits_dense
from core_runtime.processor import cpu_flags

Checkpoint = Callable[..., Path]
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


@pytest.mark.parametrize("kind", [Metal, Cuda, Cpu])
def test_each_keeps_the_protocol(kind: type[MlxBackend]) -> None:
    backend = kind()
    assert isinstance(backend, core.Backend)
    assert isinstance(backend, core.ModelProbe)
    assert isinstance(backend, core.DeviceReporting)
    assert backend.protocol == core.PROTOCOL_VERSION
    assert backend.available() == (backend.unavailable_reason() is None)
    assert core.get_backend(backend.name).name == backend.name


def test_what_is_declared_and_what_the_model_offers_agree(checkpoint: Checkpoint) -> None:
    backend = Cpu()
    with backend.load_model(checkpoint(), core.LoadConfig()) as model:
        for capability, protocol in EXTENSIONS.items():
            assert isinstance(model, protocol) == (capability in backend.capabilities), capability


def test_asking_imports_no_mlx() -> None:
    code = (
        "import sys, core\n"
        "for name in ('metal', 'mlx_cuda', 'mlx_cpu'):\n"
        "    backend = core.get_backend(name)\n"
        "    backend.available(), backend.refusal('/nowhere')\n"
        "heavy = {'mlx', 'numpy', 'tokenizers', 'jinja2', 'gguf', 'safetensors'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_backend_that_cannot_run_here_says_why(checkpoint: Checkpoint) -> None:
    if Metal().available():
        pytest.fail("this test is written for machines without Metal")
    with pytest.raises(core.BackendUnavailableError, match="Apple silicon"):
        core.load_model(checkpoint(), backend="metal")
    assert Metal().devices() == ()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"gpu_layers": 5}, core.UnsupportedOptionError, "leave gpu_layers at -1 or 0"),
        ({"context_len": 65}, core.InvalidOptionError, "at most 64"),
        (
            {"options": {"dtpye": "float32"}},
            core.InvalidOptionError,
            "dtype, length_step, prefill_chunk, prefix_cache, token_budget",
        ),
        ({"options": {"dtype": "int8"}}, core.InvalidOptionError, "'float32', 'float16'"),
        ({"options": {"token_budget": 0}}, core.InvalidOptionError, "token_budget=0"),
        ({"options": {"length_step": 0}}, core.InvalidOptionError, "length_step=0"),
        ({"options": {"prefix_cache": -1}}, core.InvalidOptionError, "prefix_cache=-1"),
        ({"options": {"prefill_chunk": "all"}}, core.InvalidOptionError, "prefill_chunk='all'"),
    ],
)
def test_a_load_option_that_cannot_be_honoured_is_refused(
    checkpoint: Checkpoint, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        core.load_model(checkpoint(), backend="mlx_cpu", **options)


@pytest.mark.parametrize("layers", [-1, 0])
def test_the_cpu_takes_all_layers_or_none_on_a_gpu(checkpoint: Checkpoint, layers: int) -> None:
    with core.load_model(checkpoint(), backend="mlx_cpu", gpu_layers=layers) as model:
        assert model.classify(["ab"])[0].error is None


def test_a_gpu_backend_refuses_a_part_of_the_layers(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = checkpoint()
    mac = MachineFacts("darwin", "arm64", {"mlx": "0.32.4"}, 0)
    monkeypatch.setattr(availability, "gather_facts", lambda: mac)
    for layers in (0, 3):
        with pytest.raises(core.UnsupportedOptionError, match="'mlx_cpu'"):
            Metal().load_model(directory, core.LoadConfig(gpu_layers=layers))


def test_the_dtype_is_chosen_and_explained(checkpoint: Checkpoint) -> None:
    directory = checkpoint()
    with Cpu().load_model(directory, core.LoadConfig()) as model:
        choices = {choice.name: choice for choice in model.choices()}
        assert list(choices) == [
            *("backend", "device", "blas"),
            *("dtype", "token_budget", "length_step", "parallel_slots", "prefill_chunk"),
            "prefix_cache",
            "suits",
        ]
        assert choices["suits"] == suits_dense(cpu_flags())
        assert choices["dtype"].value == "float32"
        assert all(choice.reason for choice in choices.values())
        exact = model.classify(["ab no"], return_logits=True)[0].logits
    half = core.LoadConfig(options={"dtype": "bfloat16"})
    with Cpu().load_model(directory, half) as model:
        assert model.info.logit_tolerance > 1e-3
        rounded = model.classify(["ab no"], return_logits=True)[0].logits
    assert exact is not None
    assert rounded is not None
    gaps = [abs(a - b) for a, b in zip(exact, rounded, strict=True)]
    assert 0 < max(gaps) < 0.5


def test_info_is_what_config_json_says(checkpoint: Checkpoint) -> None:
    with Cpu().load_model(checkpoint("gemma3"), core.LoadConfig()) as model:
        info = model.info
        assert (info.architecture, info.num_layers, info.hidden_size) == ("gemma3_text", 3, 32)
        assert (info.quant_bits, info.quant_group, info.context_length) == (0, 0, 64)
        assert model.model_type == "gemma3_text"


def test_memory_is_reported_and_its_peak_can_be_reset(checkpoint: Checkpoint) -> None:
    with Cpu().load_model(checkpoint(), core.LoadConfig()) as model:
        model.classify(["ab no " * 9])
        report = model.memory()
        assert report.peak_bytes >= report.active_bytes > 0
        model.reset_peak_memory()
        assert model.memory().peak_bytes <= report.peak_bytes
