"""Loads of real files: whole, split, adapted, and broken in every way that was thought of."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

import core
from core.errors import (
    CoreError,
    InvalidModelError,
    InvalidOptionError,
    ModelNotFoundError,
    OutOfMemoryError,
    UnsupportedModelError,
    UnsupportedOptionError,
)
from core.models.gguf import read_gguf
from core.registry import REGISTRY
from core_llama_cpp.checkpoint import estimate
from core_llama_cpp.library import load_failure

TinyGguf = Callable[..., Path]
THREADS = {"n_threads": 1}


def _load(path: Path, **options: object) -> core.TextModel:
    return core.load_model(path, backend="llama_cpp", options=THREADS, **options)  # type: ignore[arg-type]


def _greedy(path: Path, **options: object) -> list[int]:
    with _load(path, **options) as model:
        return [token.id for token in model.generate("ab ab", max_tokens=8)]


def test_what_a_load_states(tiny_gguf: TinyGguf) -> None:
    with _load(tiny_gguf(), context_len=100, parallel_slots=2) as model:
        info = model.info
        assert (info.architecture, info.vocab_size, info.num_layers) == ("llama", 101, 2)
        assert (info.hidden_size, info.context_length, info.quant_bits) == (64, 100, 0)
        assert isinstance(model, core.Explaining)
        chosen = {choice.name: choice.value for choice in model.choices()}
    assert chosen["backend"] == "llama_cpp"
    assert (chosen["context_len"], chosen["cache_cells"]) == ("100", "256")
    assert (chosen["parallel_slots"], chosen["n_threads"]) == ("2", "1")
    assert {"device", "blas", "n_batch", "n_ubatch"} <= chosen.keys()
    assert chosen["suits"] == "generate and chat"


def test_a_name_of_ollamas_answers_with_its_adapter(
    tiny_gguf: TinyGguf, lora_gguf: TinyGguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    blobs = tmp_path / "ollama" / "blobs"
    blobs.mkdir(parents=True)
    base = tiny_gguf().rename(blobs / f"sha256-{'a' * 64}")
    adapter = lora_gguf().rename(blobs / f"sha256-{'b' * 64}")
    for name, layers in {
        "plain": {"model": base},
        "tuned": {"adapter": adapter, "model": base},
    }.items():
        manifest = tmp_path / "ollama" / "manifests" / "host" / "space" / name / "latest"
        manifest.parent.mkdir(parents=True)
        content = [
            {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": blob.name}
            for kind, blob in layers.items()
        ]
        manifest.write_text(json.dumps({"layers": content}))

    def logits(model: str, **options: object) -> list[float]:
        with core.load_model(model, backend="llama_cpp", options=THREADS, **options) as loaded:  # type: ignore[arg-type]
            [result] = loaded.classify(["ab"], return_logits=True)
            return list(result.logits or ())

    plain, tuned = logits("host/space/plain"), logits("host/space/tuned")
    assert plain == logits(str(base))
    assert tuned == logits(str(base), adapter_path=str(adapter))
    assert max(abs(one - other) for one, other in zip(plain, tuned, strict=True)) > 0.1


def test_quantisation_is_told(smollm2_gguf: Path) -> None:
    with _load(smollm2_gguf, context_len=64) as model:
        assert (model.info.quant_bits, model.info.quant_group) == (4, 32)


def test_a_split_model_is_the_same_model(tiny_gguf: TinyGguf) -> None:
    first = tiny_gguf("split", shards=3)
    assert _greedy(first) == _greedy(first.parent) == _greedy(tiny_gguf("whole"))


def test_a_split_model_with_a_part_missing(tiny_gguf: TinyGguf) -> None:
    first = tiny_gguf(shards=3)
    first.with_name("tiny-00003-of-00003.gguf").unlink()
    with pytest.raises(InvalidModelError, match="tiny-00003-of-00003"):
        _load(first)


def test_a_part_under_another_name(tiny_gguf: TinyGguf) -> None:
    renamed = tiny_gguf(shards=3).rename(tiny_gguf("x").with_name("renamed.gguf"))
    with pytest.raises(InvalidModelError, match=r"one of 3 files.*NAME-00001-of-00003\.gguf"):
        _load(renamed)


def test_a_part_of_another_model(tiny_gguf: TinyGguf) -> None:
    """The header is whole; llama.cpp finds out, and says so in its log only."""
    first = tiny_gguf(shards=2)
    shutil.copy(tiny_gguf("other"), first.with_name("tiny-00002-of-00002.gguf"))
    with pytest.raises(InvalidModelError, match=r"Cannot load .* with llama\.cpp"):
        _load(first)


@pytest.mark.parametrize("kept", [0.25, 0.5, 0.99])
def test_weights_cut_off(smollm2_gguf: Path, tmp_path: Path, kept: float) -> None:
    path = tmp_path / "cut.gguf"
    shutil.copy(smollm2_gguf, path)
    with path.open("r+b") as file:
        file.truncate(int(smollm2_gguf.stat().st_size * kept))
    with pytest.raises(InvalidModelError, match="Download"):
        _load(path)


def test_the_last_tensor_cut_off(tiny_gguf: TinyGguf) -> None:
    """Its beginning is there, so only the library sees that its end is not."""
    path = tiny_gguf()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 100)
    with pytest.raises(InvalidModelError, match="not within the file bounds"):
        _load(path)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"llama.embedding_length": 32}, InvalidModelError, "RoPE rotates 16"),
        ({"llama.block_count": 3}, InvalidModelError, r"blk\.2\..*not found"),
        ({"llama.feed_forward_length": None}, InvalidModelError, "wrong shape"),
        ({"tokenizer.ggml.pre": "of-tomorrow"}, UnsupportedModelError, "of-tomorrow"),
        ({"tokenizer.ggml.model": "of-tomorrow"}, CoreError, "of-tomorrow"),
        ({"general.architecture": "gpt17"}, UnsupportedModelError, "gpt17"),
    ],
)
def test_a_header_that_contradicts_the_file(
    tiny_gguf: TinyGguf, change: dict[str, object], error: type[Exception], words: str
) -> None:
    architecture = str(change.pop("general.architecture", "llama"))
    with pytest.raises(error, match=words):
        _load(tiny_gguf(architecture=architecture, change=change))


def test_a_context_larger_than_memory_is_refused_before_it_is_allocated(
    tiny_gguf: TinyGguf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "available_bytes", lambda: 64 * 2**20)
    path = tiny_gguf(change={"llama.context_length": 2**24})
    with pytest.raises(OutOfMemoryError, match=r"KV cache for 16777216 tokens.*0\.06 GiB are free"):
        _load(path, context_len=2**24)
    with _load(path) as model:  # by default it takes what fits
        assert 256 <= model.info.context_length < 2**20


def test_a_context_that_no_machine_holds(tiny_gguf: TinyGguf) -> None:
    path = tiny_gguf(change={"llama.context_length": 2**31 - 1})
    with pytest.raises(OutOfMemoryError, match="are free"):
        _load(path, context_len=2**31 - 1)


def test_a_context_beyond_the_models_own(tiny_gguf: TinyGguf) -> None:
    with pytest.raises(InvalidOptionError, match="at most 512"):
        _load(tiny_gguf(), context_len=513)


def test_layers_for_a_gpu_that_is_not_there(tiny_gguf: TinyGguf) -> None:
    if any(device.kind == "gpu" for device in REGISTRY.status("llama_cpp").devices):
        pytest.skip("this machine's build of llama.cpp has a GPU")
    with pytest.raises(UnsupportedOptionError):
        _load(tiny_gguf(), gpu_layers=1)


def _adapter(
    path: Path, scale: float, architecture: str = "llama", kind: str = "lora", rank: int = 4
) -> Path:
    """A LoRA adapter of the first layer's query projection of the tiny model."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", kind)
    writer.add_float32("adapter.lora.alpha", float(rank))
    random = np.random.default_rng(3)
    for layer in (0, 1):
        for letter, shape in (("a", (rank, 64)), ("b", (64, rank))):
            values = random.normal(0.0, scale, shape).astype(np.float32)
            writer.add_tensor(f"blk.{layer}.attn_output.weight.lora_{letter}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_an_adapter_changes_what_the_model_says(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    path = tiny_gguf()
    plain = _greedy(path)
    assert _greedy(path, adapter_path=_adapter(tmp_path / "none.gguf", 0.0)) == plain
    folder = tmp_path / "adapter"
    folder.mkdir()
    strong = _adapter(folder / "strong.gguf", 2.0)
    changed = _greedy(path, adapter_path=strong)
    assert changed != plain
    assert _greedy(path, adapter_path=str(folder)) == changed


def test_adapters_that_cannot_be_used(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    path = tiny_gguf()
    with pytest.raises(ModelNotFoundError):
        _load(path, adapter_path=tmp_path / "nothing")
    with pytest.raises(InvalidModelError, match="not a LoRA adapter"):
        _load(path, adapter_path=path)
    with pytest.raises(InvalidModelError, match="not a LoRA adapter"):
        _load(path, adapter_path=_adapter(tmp_path / "k.gguf", 1.0, kind="of-tomorrow"))
    with pytest.raises(InvalidModelError, match="made for the architecture 'gemma3'"):
        _load(path, adapter_path=_adapter(tmp_path / "g.gguf", 1.0, architecture="gemma3"))
    with pytest.raises(InvalidModelError, match=r"one \*\.gguf adapter"):
        _load(path, adapter_path=tmp_path)


def test_an_adapter_whose_tensors_do_not_fit(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    adapter = _adapter(tmp_path / "a.gguf", 1.0)
    content = adapter.read_bytes().replace(b"blk.1.attn_output", b"blk.9.attn_output")
    adapter.write_bytes(content)
    with pytest.raises(InvalidModelError, match=r"Cannot load .*a\.gguf with .*blk\.9"):
        _load(tiny_gguf(), adapter_path=adapter)


FUZZ = """
import pathlib, random, sys
import core
whole, target = pathlib.Path(sys.argv[1]).read_bytes(), pathlib.Path(sys.argv[2])
end, kinds = int(sys.argv[3]), {}
for seed in range(int(sys.argv[4])):
    draw, content = random.Random(seed), bytearray(whole)
    for _ in range(draw.randrange(1, 4)):
        content[draw.randrange(end)] = draw.randrange(256)
    target.write_bytes(content)
    try:
        model = core.load_model(target, backend="llama_cpp", context_len=64,
                                options={"n_threads": 1})
        model.close()
        kind = "loaded"
    except core.CoreError as error:
        kind = type(error).__name__
    kinds[kind] = kinds.get(kind, 0) + 1
print(kinds)
"""


def test_no_mutated_header_ends_the_process(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    path = tiny_gguf()
    end = read_gguf(path, tensors=True).data_offset
    command = [sys.executable, "-c", FUZZ, str(path), str(tmp_path / "fuzzed.gguf"), str(end)]
    done = subprocess.run([*command, "150"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "loaded" in done.stdout
    assert "InvalidModelError" in done.stdout


def test_what_llama_cpp_says_becomes_a_typed_error() -> None:
    path = Path("m.gguf")
    failed = "llama_model_load_from_file_impl: failed to load model"
    cause = "llama_model_load: error loading model: missing tensor 'x'"
    error = load_failure(path, ["something before", cause, failed])
    assert isinstance(error, InvalidModelError)
    assert "m.gguf with llama.cpp: missing tensor 'x'." in str(error)
    memory = load_failure(path, ["ggml_aligned_malloc: failed to allocate 12 bytes"])
    assert isinstance(memory, OutOfMemoryError)
    unknown = load_failure(path, [f"{cause[:39]} unknown pre-tokenizer type: 'x'"])
    assert isinstance(unknown, UnsupportedModelError)
    assert "no reason" in str(load_failure(path, []))
