"""The line that says what a backend is for on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_runtime.choices import suits_dense, suits_llama_cpp, suits_openvino
from core_runtime.processor import bfloat16_instructions, int8_instructions, reported_flags

PLAIN = frozenset({"fpu", "avx2", "avx512f"})
LINE = "flags\t: fpu sse2 avx2 avx512f"


def test_each_of_the_two_names_the_other() -> None:
    dense, llama = suits_dense(PLAIN), suits_llama_cpp(PLAIN)
    assert dense.name == llama.name == "suits"
    assert "classify" in dense.value
    assert "chat" in llama.value
    assert "llama_cpp" in dense.reason
    assert "GGUF" in dense.reason
    assert "mlx_cpu" in llama.reason
    assert "safetensors" in llama.reason


def test_openvino_suits_bulk_where_it_has_the_instructions() -> None:
    assert "batches" in suits_openvino(PLAIN | {"avx512_bf16"}).value
    assert "llama_cpp" in suits_openvino(PLAIN | {"avx512_bf16"}).reason
    assert "mlx_cpu" in suits_openvino(PLAIN).reason


@pytest.mark.parametrize(
    ("flag", "words"), [("amx_bf16", "in bfloat16, with AMX"), ("avx_vnni", "with dtype='int8'")]
)
def test_both_name_openvino_where_it_is_faster(flag: str, words: str) -> None:
    for choice in (suits_dense(PLAIN | {flag}), suits_llama_cpp(PLAIN | {flag})):
        assert "openvino" in choice.reason
        assert words in choice.reason
        assert "mlx_cpu" not in choice.reason
    assert "classify" not in suits_dense(PLAIN | {flag}).value
    assert suits_llama_cpp(PLAIN | {flag}).value == "generate and chat"


def test_the_flags_are_those_of_cpuinfo(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\nmodel name\t: X\n{LINE}\n\nprocessor\t: 1\n{LINE}\n")
    assert reported_flags(file) == {"fpu", "sse2", "avx2", "avx512f"}
    assert reported_flags(tmp_path / "none") == frozenset()
    file = tmp_path / "arm"
    file.write_text("Features\t: fp asimd bf16 i8mm\n")
    assert bfloat16_instructions(reported_flags(file)) == ("ARM BF16",)
    assert int8_instructions(reported_flags(file)) == ("ARM I8MM",)
