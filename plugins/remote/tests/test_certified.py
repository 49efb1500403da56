"""The conformance suite on models behind servers: ours, llama-cpp-python's and mlx_lm's."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from core_conformance.checking.check import all_checks
from core_conformance.checking.subject import Subject
from core_conformance.reference import Reference
from core_conformance.running.result import Status
from core_conformance.running.runner import run_check
from core_remote.backend import Remote
from core_remote.capabilities import CONTRACT
from plugins.remote.tests.serve_process import server

pytestmark = pytest.mark.load  # a busy machine can make it fail

Certify = Callable[..., set[str]]

_KEY = "a-key"
_AREAS = ("async", "errors", "identity", "loading", "stop", "streaming")
_TEXTS = {
    *("generate", "chat", "batch_generate", "seed"),
    *("declaring", "explaining", "model_probe"),
}
"""What servers of OpenAI's wire are seen to offer here."""


@pytest.fixture
def reference(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of the suite's reference behind our server."""
    monkeypatch.setenv("CORE_REMOTE_API_KEY", _KEY)
    script = Path(__file__).with_name("serve_reference.py")
    command = [sys.executable, str(script), str(port), _KEY]
    with server(command, port, tmp_path / "log") as url:
        yield url


def test_what_neither_sweeps_nor_searches_of_a_few_areas(reference: str) -> None:
    """What a change shows in seconds; the other checks run with the soaks."""
    with closing(Subject(Remote(), reference)) as subject:
        asked = [c for c in all_checks().values() if not c.broad and c.id.startswith(_AREAS)]
        found = [run_check(check, subject) for check in asked]
        declared = subject.capabilities
    assert len(found) > 40
    assert {each.id: each.reason for each in found if each.status is not Status.PASSED} == {}
    assert declared == CONTRACT & Reference().capabilities


@pytest.mark.slow
def test_our_server_is_certified(certify: Certify, reference: str) -> None:
    capabilities = CONTRACT & Reference().capabilities
    assert certify("remote", reference) == {capability.value for capability in capabilities}


# llama-cpp-python sends one piece for the tokens that make one character, and nothing that counts
# them: where a hot draw or an odd prompt brings such a character, a stream has fewer tokens than
# max_tokens and ends with "length".
_COUNTING = ("generated.", "pairs.")


@pytest.mark.slow
def test_of_llama_cpp_pythons_server_only_counts_of_tokens_are_wrong(
    smollm2_gguf: Path, port: int, tmp_path: Path, stock_llama_cpp: bool
) -> None:
    if not stock_llama_cpp:
        pytest.skip("llama.cpp itself crashes on a processor with AMX")
    pytest.importorskip("starlette_context", reason="llama-cpp-python's server is not installed")
    words = ["--model", str(smollm2_gguf), "--n_ctx", "512", "--n_threads", "1"]
    command = [sys.executable, "-m", "llama_cpp.server", *words, "--port", str(port)]
    file = tmp_path / "report.json"
    with server([*command, "--host", "127.0.0.1"], port, tmp_path / "log") as url:
        told = ["-m", url, "-O", "context_length=512", "--report", str(file)]
        code = "from core_cli import main; main()"
        subprocess.run([sys.executable, "-c", code, "conformance", "remote", *told], check=False)
    report = json.loads(file.read_text())
    assert set(report["backend"]["capabilities"]) == _TEXTS
    assert len(report["checks"]) == len(all_checks())
    wrong = [each for each in report["checks"] if each["status"] != "passed"]
    assert [each for each in wrong if "length" not in each["reason"]] == []
    assert [each for each in wrong if not each["id"].startswith(_COUNTING)] == []


@pytest.mark.slow
def test_mlx_lms_server_is_certified(
    certify: Certify, speaking: Path, port: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "mlx_lm.server", "--model", str(speaking)]
    with server([*command, "--port", str(port)], port, tmp_path / "log") as url:
        assert certify("remote", url, "-O", "context_length=256") == _TEXTS


_HIDDEN, _WIDE, _LAYERS, _HEADS, _KV_HEADS = 64, 96, 2, 4, 2
_FOND = 1.6  # of tokens with letters beyond ASCII


@pytest.fixture
def speaking(smollm2_dir: Path, tmp_path: Path) -> Path:
    """SmolLM2 with random weights of two narrow layers, sure of itself and fond of odd letters.

    The suite sees no logits of it, so its best token has to lead; and it has to say characters of
    several bytes.
    """
    if importlib.util.find_spec("mlx_lm") is None:
        pytest.skip("mlx-lm is not installed")
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer

    directory = tmp_path / "speaking"
    directory.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (directory / name).write_bytes((smollm2_dir / name).read_bytes())
    config = json.loads((smollm2_dir / "config.json").read_text()) | {
        "hidden_size": _HIDDEN,
        "head_dim": _HIDDEN // _HEADS,
        "intermediate_size": _WIDE,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
    }
    (directory / "config.json").write_text(json.dumps(config))

    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    texts = [
        tokenizer.decode([id], skip_special_tokens=False) for id in range(config["vocab_size"])
    ]
    odd = [not text.isascii() and "\ufffd" not in text for text in texts]
    save_file(_weights(np.array(odd)), str(directory / "model.safetensors"))
    return directory


def _weights(odd: np.ndarray) -> dict[str, np.ndarray]:
    """Random ones by Llama's names; the head is the embeddings."""
    random = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return random.normal(0.0, 0.3, shape).astype(np.float32)

    size = _HIDDEN // _HEADS
    embeddings = drawn(len(odd), _HIDDEN) * np.where(odd, np.float32(_FOND), np.float32(1))[:, None]
    found = {"model.embed_tokens.weight": embeddings, "model.norm.weight": np.full(_HIDDEN, 8.0)}
    for layer in range(_LAYERS):
        name = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found[f"{name}.{norm}.weight"] = np.ones(_HIDDEN)
        for part, rows in {"q": _HEADS, "k": _KV_HEADS, "v": _KV_HEADS}.items():
            found[f"{name}.self_attn.{part}_proj.weight"] = drawn(rows * size, _HIDDEN)
        found[f"{name}.self_attn.o_proj.weight"] = drawn(_HIDDEN, _HEADS * size)
        for part in ("gate", "up"):
            found[f"{name}.mlp.{part}_proj.weight"] = drawn(_WIDE, _HIDDEN)
        found[f"{name}.mlp.down_proj.weight"] = drawn(_HIDDEN, _WIDE)
    return {key: value.astype(np.float32) for key, value in found.items()}
