"""A model that cannot be loaded here: what `classify` and `info` say of it, with real backends."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A directory whose config.json says what no checkpoint says."""
    pytest.importorskip("core_mlx_native")
    config = {**LLAMA, "quantization": {"bits": 4, "group_size": 32, "x": None}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def test_the_real_cause_comes_first(infer_cli: InferCli, broken: Path) -> None:
    bare = type(infer_cli)(infer_cli.path[:1])  # without the fake, which takes everything
    done = bare.finish("classify", "-m", broken, "--labels", "a,b", "x")
    assert done.exit_code == 1
    head, first, *_ = done.stderr.splitlines()
    assert head == f"Error: No available backend can load '{broken}':"
    assert first.startswith(("  openvino: ", "  mlx_cpu: "))
    assert "quantization" in first
    assert "does not support classify" not in first
    assert "install" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere metal runs, or MLX does not")
@pytest.mark.whole
def test_nothing_is_named_that_cannot_run_here(infer_cli: InferCli, broken: Path) -> None:
    bare = type(infer_cli)(infer_cli.path[:1])
    by_name = bare.finish("classify", "-m", broken, "--backend", "mlx_lm", "x").stderr
    expected = r"Backend 'mlx_lm' does not support classify. Supported by: (openvino, )?mlx_cpu\."
    assert re.search(expected, by_name)
    listed = json.loads(bare.finish("backends", "--json").stdout)
    assert "reference" not in [backend["name"] for backend in listed]
    cuda = next(backend for backend in listed if backend["name"] == "mlx_cuda")
    assert (
        cuda["available"]
        or "install" not in cuda["reason"]
        or "without core[mlx]" in cuda["reason"]
    )


def test_a_file_of_another_format_for_a_backend_asked_for_by_name(
    infer_cli: InferCli, tmp_path: Path
) -> None:
    pytest.importorskip("core_llama_cpp")
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16))
    bare = type(infer_cli)(infer_cli.path[:1])
    for command in (("info", file), ("classify", "x", "-m", file)):
        said = bare.finish(*command, "--backend", "mlx_cpu").stderr
        assert f"Backend 'mlx_cpu' only loads safetensors; '{file}' is gguf." in said
        assert re.search("Use backend '(openvino|llama_cpp)' instead.", said)
        assert "install" not in said
