"""The compiled graph's fused nodes, and what importing and loading bring into a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core_openvino.weights import stored_bytes
from plugins.openvino.tests.passes import last_logits, session_of
from runtime.tests.tiny import Checkpoint

LAYERS = {"llama": 2, "mistral": 2, "qwen2": 2, "qwen3": 2, "gemma3": 3}
NORMS = {"qwen3": 4, "gemma3": 6}  # of a layer; others have 2
LEFT_OVER = {"Softmax", "Split", "VariadicSplit", "Concatenation", "Transpose", "MatMul", "Power"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("family", LAYERS)
def test_norms_angles_and_attention_are_one_node_each(
    checkpoint: Checkpoint, family: str, dtype: str
) -> None:
    from core_openvino.nodes import node_counts

    layers = LAYERS[family]
    with session_of(checkpoint(family, intermediate_size=64), dtype, threads=4) as session:
        body = node_counts(session._body.request.get_compiled_model())
        head = node_counts(session._head.get_compiled_model())
    assert body["PagedAttention"] == layers
    assert body["RoPE"] == 2 * layers
    assert body["RMS"] == NORMS.get(family, 2) * layers + 1
    assert (body["FullyConnected"], head["FullyConnected"]) == (7 * layers, 1)
    assert not LEFT_OVER & set(body)
    assert not {name for name in body if "MLP" in name or "QKV" in name}
    if dtype == "int8":  # no integers became float32 but the embedding's rows
        assert body["Convert"] == 1


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("family", LAYERS)
def test_bfloat16_compiles_for_any_number_of_threads(
    checkpoint: Checkpoint, family: str, threads: int
) -> None:
    """On a processor with AMX, one thread and a fused MLP ended the process (SIGFPE)."""
    with session_of(checkpoint(family, intermediate_size=64), "bfloat16", threads=threads) as one:
        assert last_logits(one, [[1, 2, 3]]).std() > 0


def _modules_after(code: str, *arguments: str, path: str = "") -> set[str]:
    """Return the top-level modules of a process that ran the code, with ``path`` to import from."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_questions_about_the_backend_import_no_openvino(checkpoint: Checkpoint) -> None:
    plain = _modules_after("import core_openvino.backend")
    assert not {"openvino", "numpy", "tokenizers", "gguf"} & plain
    asked = _modules_after(
        "from core_openvino.backend import OpenVino as B\n"
        "assert B().refusal(sys.argv[1]) is None, B().refusal(sys.argv[1])",
        str(checkpoint()),
    )
    assert not {"openvino", "openvino_telemetry"} & asked


LOAD = """
import core
with core.load_model(sys.argv[1], backend='openvino') as model:
    assert model.classify(['ab'])[0].error is None
"""


def test_a_load_imports_no_telemetry(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Neither the installed package nor one that is found first; others can import it later."""
    directory = str(checkpoint())
    (tmp_path / "openvino_telemetry").mkdir()
    (tmp_path / "openvino_telemetry" / "__init__.py").write_text("class Telemetry: pass\n")
    modules = _modules_after(LOAD, directory, path=str(tmp_path))
    assert "openvino" in modules
    assert not {name for name in modules if "telemetry" in name}
    later = _modules_after(f"{LOAD}\nimport openvino_telemetry", directory, path=str(tmp_path))
    assert "openvino_telemetry" in later


def test_bytes_of_weights() -> None:
    shapes = {"matrix": (64, 96), "norm": (64,)}
    assert stored_bytes(shapes, "float32") == 64 * 96 * 4 + 64 * 4
    assert stored_bytes(shapes, "bfloat16") == 64 * 96 * 2 + 64 * 4
    assert stored_bytes(shapes, "int8") == 64 * 96 + 64 * 96 // 32 * 4 + 64 * 4
