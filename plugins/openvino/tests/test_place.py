"""Where the backend stands among the others, by the processor, and what a probe imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import core
from core.registry import REGISTRY
from core_openvino import availability
from core_openvino.backend import OpenVino


@pytest.fixture
def old_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor without the instructions for bfloat16 and int8."""
    monkeypatch.setattr(availability, "cpu_flags", lambda: frozenset({"fpu", "avx2", "avx512f"}))


@pytest.fixture
def new_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor with instructions for bfloat16."""
    monkeypatch.setattr(availability, "cpu_flags", lambda: frozenset({"avx512_bf16"}))


@pytest.mark.parametrize(
    "flag", ["avx512_bf16", "amx_bf16", "amx_int8", "avx512_vnni", "avx_vnni", "bf16", "i8mm"]
)
def test_with_the_instructions_it_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    monkeypatch.setattr(availability, "cpu_flags", lambda: frozenset({"fpu", flag}))
    assert OpenVino().deferral() is None


@pytest.mark.usefixtures("old_processor")
def test_without_the_instructions_it_leaves_models_to_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("core_mlx_native")
    reason = OpenVino().deferral()
    assert reason is not None
    assert "none of AVX512_BF16, AMX and VNNI" in reason
    assert "backend='openvino'" in reason
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert OpenVino().deferral() is None


@pytest.mark.usefixtures("old_processor")
def test_without_the_instructions_another_is_the_default(smollm2_dir: Path) -> None:
    pytest.importorskip("core_mlx_native")
    choice = REGISTRY.choose(smollm2_dir)
    assert choice.backend.name in ("metal", "mlx_cuda", "mlx_cpu")
    assert "none of AVX512_BF16" in dict(choice.skipped)["openvino"]
    assert REGISTRY.verdict(smollm2_dir, None).backends[-1] == "openvino"


@pytest.mark.usefixtures("old_processor")
def test_named_it_loads_without_the_instructions(smollm2_dir: Path) -> None:
    with core.load_model(smollm2_dir, backend="openvino", context_len=64) as model:
        (result,) = model.classify(["The bank raised rates. This is about"], labels=[" a", " b"])
        assert result.error is None


@pytest.mark.usefixtures("new_processor")
def test_with_the_instructions_it_is_the_default(smollm2_dir: Path, smollm2_gguf: Path) -> None:
    for path in (smollm2_dir, smollm2_gguf):
        choice = REGISTRY.choose(path)
        if choice.backend.name not in ("metal", "mlx_cuda", "rocm"):
            assert choice.backend.name == "openvino"
            adapted = REGISTRY.choose(path, core.Capability.ADAPTERS)
            assert "it does not support adapters" in dict(adapted.skipped)["openvino"]


def test_a_probe_imports_no_library(smollm2_dir: Path, smollm2_gguf: Path) -> None:
    code = (
        "import sys; from core_openvino.backend import OpenVino; b = OpenVino()\n"
        "assert b.unavailable_reason() is None; b.devices(); b.deferral()\n"
        "for path in sys.argv[1:]: assert b.refusal(path) is None, b.refusal(path)\n"
        "heavy = {'openvino', 'openvino_telemetry', 'numpy', 'tokenizers'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    command = [sys.executable, "-c", code, str(smollm2_dir), str(smollm2_gguf)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
