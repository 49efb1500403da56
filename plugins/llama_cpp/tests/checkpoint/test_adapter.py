"""LoRA adapters: what they do to the logits of a real model, and against weights merged by hand."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

import core
from core.errors import InvalidModelError, ModelNotFoundError, UnsupportedModelError
from core.models.gguf import read_gguf
from core_llama_cpp.checkpoint.adapter import find_adapter
from core_llama_cpp.checkpoint.header import read_header
from core_llama_cpp.model import LlamaModel
from core_llama_cpp.tolerance import EXACT

Row = npt.NDArray[np.float32]
Write = Callable[..., Path]

PROMPTS = ("The capital of France is", "Water boils at")
HIDDEN, KEYS, FEED_FORWARD, TOKENS = 64, 32, 96, 101  # of the tiny model
SHAPES = {  # of its weights, [out, in]
    "attn_q": (HIDDEN, HIDDEN),
    "attn_v": (KEYS, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN),
    "ffn_gate": (FEED_FORWARD, HIDDEN),
    "ffn_down": (HIDDEN, FEED_FORWARD),
}


def pair(
    out: int, into: int, rank: int = 2, a: float = 0.1, b: float = 0.1, seed: int = 3
) -> tuple[Row, Row]:
    """Random A [rank, into] and B [out, rank] with these standard deviations."""
    random = np.random.default_rng(seed)
    first = random.normal(0.0, a, (rank, into)).astype(np.float32)
    return first, random.normal(0.0, b, (out, rank)).astype(np.float32)


def logits(model: core.TextModel, prompts: tuple[str, ...] = PROMPTS) -> Row:
    results = model.classify(prompts, return_logits=True)
    assert [result.error for result in results] == [None] * len(results)
    return np.array([result.logits for result in results], np.float32)


def load(path: Path, adapter: Path | None, context_len: int = 64) -> core.TextModel:
    return core.load_model(
        path,
        backend="llama_cpp",
        context_len=context_len,
        parallel_slots=1,
        adapter_path=adapter,
        options={"n_threads": 1, "n_batch": 32},
    )


def adapted(path: Path, adapter: Path | None, prompts: tuple[str, ...] = PROMPTS) -> Row:
    with load(path, adapter) as model:
        return logits(model, prompts)


def test_a_real_model_with_an_adapter(
    smollm2_gguf: Path, smollm2_model: LlamaModel, lora_gguf: Write
) -> None:
    plain, near = logits(smollm2_model), EXACT
    names = ("blk.0.attn_q.weight", "blk.7.attn_output.weight")
    zero = lora_gguf("zero", {name: pair(576, 576, b=0.0) for name in names})
    assert np.abs(adapted(smollm2_gguf, zero) - plain).max() <= near
    strong = lora_gguf("strong", {name: pair(576, 576) for name in names})
    with load(smollm2_gguf, strong) as model:
        found = logits(model)
        first = [next(model.generate(prompt, max_tokens=1)).id for prompt in PROMPTS]
    assert np.abs(found - plain).max() > 100 * near
    assert first == found.argmax(axis=1).tolist()


@pytest.mark.parametrize(("rank", "alpha"), [(2, 4.0), (1, 0.5), (8, 8.0)])
def test_an_adapter_is_its_product_added_to_the_weights(
    tiny_gguf: Write, lora_gguf: Write, rank: int, alpha: float
) -> None:
    shapes = {f"blk.{i}.{name}.weight": shape for i in (0, 1) for name, shape in SHAPES.items()}
    pairs = {name: pair(*shape, rank, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    merged = {name: alpha / rank * (b @ a) for name, (a, b) in pairs.items()}
    prompts = ("ab ab", "!?a b")
    plain = adapted(tiny_gguf(), None, prompts)
    expected = adapted(tiny_gguf("merged", added=merged), None, prompts)
    found = adapted(tiny_gguf(), lora_gguf(tensors=pairs, alpha=alpha), prompts)
    assert np.abs(found - expected).max() < 1e-4
    assert np.abs(plain - expected).max() > 1e-2


def test_embedding_and_output_are_adapted_where_they_are_apart(
    tiny_gguf: Write, lora_gguf: Write
) -> None:
    first, second = pair(TOKENS, HIDDEN)
    pairs = {
        "output.weight": (first, second),
        "token_embd.weight": (second, first.T.copy()),  # the rows of this A are looked up
    }
    merged = dict.fromkeys(pairs, 4.0 / 2 * second @ first)
    plain = adapted(tiny_gguf(), None, ("ab ab",))
    expected = adapted(tiny_gguf("merged", added=merged), None, ("ab ab",))
    found = adapted(tiny_gguf(), lora_gguf(tensors=pairs, alpha=4.0), ("ab ab",))
    assert np.abs(found - expected).max() < 1e-4
    assert np.abs(plain - expected).max() > 1e-2


def test_adapters_of_another_model(
    smollm2_gguf: Path, gemma3_gguf: Path, lora_gguf: Write, tmp_path: Path
) -> None:
    tiny = lora_gguf("tiny", {"blk.0.attn_q.weight": pair(HIDDEN, HIDDEN)})
    with pytest.raises(InvalidModelError, match=r"tiny\.gguf with llama\.cpp: .*incorrect shape"):
        load(smollm2_gguf, tiny)
    with pytest.raises(InvalidModelError, match="made for the architecture 'llama'"):
        load(gemma3_gguf, tiny)
    with pytest.raises(InvalidModelError, match="not a LoRA adapter"):
        load(smollm2_gguf, gemma3_gguf)
    with pytest.raises(ModelNotFoundError):
        load(smollm2_gguf, tmp_path / "missing.gguf")


A, B = pair(HIDDEN, HIDDEN)
QUERY = "blk.0.attn_q.weight"


@pytest.mark.parametrize(
    ("weight", "a", "b"),
    [
        ("blk.9.attn_q.weight", A, B),
        ("blk.0.attn_q", A, B),
        ("blk.0.attn_norm.weight", A, B),
        (QUERY, A, B[:32]),
        (QUERY, A[:, :32], B),
    ],
)
def test_adapters_that_llama_cpp_refuses(
    tiny_gguf: Write, lora_gguf: Write, weight: str, a: Row, b: Row
) -> None:
    adapter = lora_gguf(tensors={weight: (a, b)})
    with pytest.raises(InvalidModelError, match=r"Cannot load .*lora\.gguf with "):
        load(tiny_gguf(), adapter)


@pytest.mark.parametrize(
    ("weight", "a", "b", "words"),
    [
        (QUERY, A.astype(np.int32), B, "ggml's type 26"),
        (QUERY, A, B.astype(np.float64), "ggml's type 28"),
        (QUERY, A, np.stack([B, B]), "do not match"),
        (QUERY, np.stack([A, A]), np.stack([B, B]), "do not match"),
        (QUERY, A, pair(HIDDEN, HIDDEN, rank=3)[1], "do not match"),
        (QUERY, A[0], B, "do not match"),
        ("blk.0.ffn_up_exps.weight", A, B, "do not match"),
        ("token_embd.weight", *pair(HIDDEN, TOKENS), "do not match"),
    ],
)
def test_adapters_that_would_end_the_process(
    tiny_gguf: Write, lora_gguf: Write, weight: str, a: Row, b: Row, words: str
) -> None:
    change = {"llama.expert_count": 2} if "exps" in weight else {}
    header = read_header(tiny_gguf(change=change))
    with pytest.raises(InvalidModelError, match=words):
        find_adapter(lora_gguf(tensors={weight: (a, b)}), header)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (struct.pack("<If", 6, 4.0), struct.pack("<II", 4, 4)),
        (struct.pack("<f", 4.0), struct.pack("<f", math.nan)),
        (struct.pack("<f", 4.0), struct.pack("<f", math.inf)),
        (b".lora_b", b".lora_c"),
    ],
)
def test_headers_that_would_end_the_process(
    tiny_gguf: Write, lora_gguf: Write, old: bytes, new: bytes
) -> None:
    adapter, header = lora_gguf(), read_header(tiny_gguf())
    assert find_adapter(adapter, header) == adapter
    adapter.write_bytes(adapter.read_bytes().replace(old, new, 1))
    with pytest.raises(InvalidModelError, match=r"adapter.lora.alpha is|no pairs of tensors"):
        find_adapter(adapter, header)


def test_an_alpha_of_another_width(tiny_gguf: Write, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float64("adapter.lora.alpha", 4.0)
    writer.add_tensor(f"{QUERY}.lora_a", A)
    writer.add_tensor(f"{QUERY}.lora_b", B)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InvalidModelError, match="expected float32"):
        find_adapter(tmp_path / "a.gguf", read_header(tiny_gguf()))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("adapter.alora.invocation_tokens", [3, 4], "aLoRA"),
        ("adapter.lora.other", 1.0, r"adapter\.lora\.other.*unknown"),
    ],
)
def test_what_an_adapter_says_and_nobody_honours_is_refused(
    tiny_gguf: Write, lora_gguf: Write, key: str, value: object, words: str
) -> None:
    adapter, header = lora_gguf(more={key: value}), read_header(tiny_gguf())
    with pytest.raises(UnsupportedModelError, match=words):
        find_adapter(adapter, header)


def written(file: Path, norms: bool) -> Path:
    """Write a LoRA of one weight, perhaps with a norm next to it."""
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 4.0)
    writer.add_tensor(f"{QUERY}.lora_a", A)
    writer.add_tensor(f"{QUERY}.lora_b", B)
    if norms:
        writer.add_tensor("blk.0.attn_norm.weight", np.ones(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def test_a_norm_that_llama_cpp_passes_over_is_refused(tiny_gguf: Write, tmp_path: Path) -> None:
    adapter, header = written(tmp_path / "a.gguf", True), read_header(tiny_gguf())
    with pytest.raises(UnsupportedModelError, match=r"ignores blk\.0\.attn_norm\.weight"):
        find_adapter(adapter, header)
    plain = written(tmp_path / "b.gguf", False)
    assert find_adapter(plain, header) == plain


def test_an_adapter_in_safetensors_is_to_be_converted(tiny_gguf: Write, tmp_path: Path) -> None:
    directory = tmp_path / "peft"
    directory.mkdir()
    (directory / "adapter_config.json").write_text("{}")
    with pytest.raises(InvalidModelError, match="infer-cli lora export --gguf"):
        find_adapter(directory, read_header(tiny_gguf()))


def test_an_embedding_that_is_the_output_as_well(smollm2_gguf: Path, lora_gguf: Write) -> None:
    first, second = pair(49152, 576)
    adapter = lora_gguf(tensors={"token_embd.weight": (second, first.T.copy())})
    with pytest.raises(UnsupportedModelError, match="token embedding"):
        find_adapter(adapter, read_header(smollm2_gguf))


@pytest.mark.parametrize("kept", [0, 3, 100, 0.5, 0.99])
def test_an_adapter_cut_off(tiny_gguf: Write, lora_gguf: Write, kept: float) -> None:
    adapter = lora_gguf()
    data = adapter.read_bytes()
    adapter.write_bytes(data[: int(kept if kept >= 1 else kept * len(data))])
    with pytest.raises(InvalidModelError, match=r"lora\.gguf"):
        load(tiny_gguf(), adapter)


FUZZ = """
import collections, pathlib, random, sys
import core
model, source, target, end, count = *map(pathlib.Path, sys.argv[1:4]), *map(int, sys.argv[4:])
whole, kinds = source.read_bytes(), collections.Counter()
for seed in range(count):
    draw, content = random.Random(seed), bytearray(whole)
    for _ in range(draw.randrange(1, 3)):
        content[draw.randrange(end)] = draw.randrange(256)
    target.write_bytes(content)
    print(seed, file=sys.stderr, flush=True)
    try:
        with core.load_model(model, backend="llama_cpp", context_len=32, adapter_path=target,
                             options={"n_threads": 1}) as adapted:
            adapted.classify(["ab ab"])
        kinds["loaded"] += 1
    except core.CoreError as error:
        kinds[type(error).__name__] += 1
print(kinds)
"""


def test_no_mutated_adapter_ends_the_process(
    tiny_gguf: Write, lora_gguf: Write, tmp_path: Path
) -> None:
    adapter = lora_gguf()
    end = read_gguf(adapter, tensors=True).data_offset
    places = [str(path) for path in (tiny_gguf(), adapter, tmp_path / "fuzzed.gguf")]
    command = [sys.executable, "-c", FUZZ, *places, str(end), "300"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "'loaded'" in done.stdout
    assert "'InvalidModelError'" in done.stdout
