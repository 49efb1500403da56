"""What the tensors say where config.json leaves it open: a head of one's own, the size of a head.

And that no tensor is passed over unless it could change nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.loaded import load_decoder

Checkpoint = Callable[..., Path]
Tensors = dict[str, mx.array]
TIED = ("llama", "qwen3", "gemma2", "gemma3")
EMBEDDING, HEAD = "model.embed_tokens", "lm_head"


def tensors_of(directory: Path) -> Tensors:
    loaded = mx.load(str(directory / "model.safetensors"))
    assert isinstance(loaded, dict)
    return loaded


def change(directory: Path, tensors: Tensors = {}, **config: object) -> None:  # noqa: B006
    """Add tensors, and set keys of config.json (None removes one)."""
    both = {**tensors_of(directory), **tensors}
    mx.eval(both)
    mx.save_safetensors(str(directory / "model.safetensors"), both)
    path = directory / "config.json"
    changed = {**json.loads(path.read_text()), **config}
    path.write_text(json.dumps({key: value for key, value in changed.items() if value is not None}))


def packed(name: str, matrix: mx.array) -> Tensors:
    parts = zip(("weight", "scales", "biases"), mx.quantize(matrix, 32, 4), strict=True)
    return {f"{name}.{part}": array for part, array in parts}


def head_of(directory: Path, hidden: mx.array) -> mx.array:
    return load_decoder(directory).logits(hidden)


@pytest.mark.parametrize("family", TIED)
@pytest.mark.parametrize("flag", [None, True])
def test_a_head_that_is_not_the_embedding_is_used(
    checkpoint: Checkpoint, family: str, flag: bool | None
) -> None:
    directory = checkpoint(family, "untied", tie_word_embeddings=False)
    tied = checkpoint(family, "tied", tie_word_embeddings=True)
    own = tensors_of(directory)[f"{HEAD}.weight"]
    change(tied, {f"{HEAD}.weight": own})
    if family.startswith("gemma"):
        change(tied, tie_word_embeddings=flag)
    change(directory, tensors_of(tied))
    x = mx.random.normal((3, own.shape[1]), key=mx.random.key(1))
    assert mx.array_equal(head_of(tied, x), head_of(directory, x))
    mixed = load_decoder(tied)
    few = mx.array([5, 9, 2])
    assert mx.allclose(mixed.logits_of(x, few), mixed.logits(x)[:, few], atol=1e-5)


@pytest.mark.parametrize("family", TIED)
def test_one_that_is_the_embedding_again_takes_no_memory(
    checkpoint: Checkpoint, family: str
) -> None:
    directory = checkpoint(family, tie_word_embeddings=True)
    change(directory, {f"{HEAD}.weight": tensors_of(directory)[f"{EMBEDDING}.weight"]})
    decoder = load_decoder(directory)
    assert HEAD not in decoder
    assert decoder.logits(mx.ones((1, 32))).shape[-1] > 100


def test_packed_heads_are_compared_part_by_part(checkpoint: Checkpoint) -> None:
    directory = checkpoint("gemma3")
    matrix = tensors_of(directory)[f"{EMBEDDING}.weight"]
    quantization = {"bits": 4, "group_size": 32}
    change(directory, {**packed(EMBEDDING, matrix), **packed(HEAD, matrix)})
    change(directory, quantization=quantization)
    assert HEAD not in load_decoder(directory)
    other = packed(HEAD, matrix)
    change(directory, {f"{HEAD}.scales": other[f"{HEAD}.scales"] * 2})
    assert HEAD in load_decoder(directory)
    assert HEAD in load_decoder(directory, dequantize=False)


@pytest.mark.parametrize(
    ("name", "shape"), [("lm_head.weight", (7, 32)), ("lm_head.bias", (102,)), ("lm_head.x", (2,))]
)
def test_a_head_that_does_not_fit_is_refused_by_name(
    checkpoint: Checkpoint, name: str, shape: tuple[int, ...]
) -> None:
    directory = checkpoint("gemma3")
    change(directory, {name: mx.ones(shape)})
    with pytest.raises(core.InvalidModelError, match=name):
        load_decoder(directory)


def test_a_model_with_a_head_of_its_own_generates_with_it(checkpoint: Checkpoint) -> None:
    directory = checkpoint("gemma3", "own", tie_word_embeddings=None)
    matrix = tensors_of(directory)[f"{EMBEDDING}.weight"]
    with Cpu().load_model(directory, core.LoadConfig()) as model:
        before = model.classify(["ab no"], return_logits=True)[0].logits
    change(directory, {f"{HEAD}.weight": -matrix})
    with Cpu().load_model(directory, core.LoadConfig()) as model:
        after = model.classify(["ab no"], return_logits=True)[0].logits
    assert before is not None
    assert after is not None
    assert [-logit for logit in after] == pytest.approx(list(before), abs=1e-4)


def test_a_tensor_that_is_there_twice_is_refused(checkpoint: Checkpoint) -> None:
    directory = checkpoint("gemma3")
    norm = {"model.norm.weight": mx.ones((32,))}
    (directory / "model.safetensors").rename(directory / "model-00001-of-00002.safetensors")
    second = directory / "model-00002-of-00002.safetensors"
    mx.save_safetensors(str(second), norm)
    with pytest.raises(core.InvalidModelError, match=r"00002\.safetensors.*model\.norm\.weight"):
        load_decoder(directory)
    (directory / "model-00001-of-00002.safetensors").rename(directory / "model.safetensors")
    second.unlink()
    change(directory, {"language_model.model.norm.weight": mx.ones((32,))})
    with pytest.raises(core.InvalidModelError, match=r"model\.norm\.weight"):
        load_decoder(directory)


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral", "qwen3", "gemma2", "gemma3"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_head_dim_is_that_of_the_tensors(
    checkpoint: Checkpoint, family: str, kv_heads: int
) -> None:
    sizes = {"head_dim": 24, "num_key_value_heads": kv_heads}
    directory = checkpoint(family, "stated", **sizes)
    with Cpu().load_model(directory, core.LoadConfig()) as model:
        stated = model.classify(["ab no"], return_logits=True)[0].logits
    change(directory, head_dim=None)
    with Cpu().load_model(directory, core.LoadConfig()) as model:
        found = model.classify(["ab no"], return_logits=True)[0].logits
        assert model.inspect_attention("ab").head_dim == 24
    assert stated == found


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_also_where_the_matrix_is_packed(checkpoint: Checkpoint, family: str) -> None:
    directory = checkpoint(family, head_dim=24)
    name = "model.layers.0.self_attn.q_proj"
    change(directory, packed(name, tensors_of(directory)[f"{name}.weight"]))
    change(directory, head_dim=None, quantization={"bits": 4, "group_size": 32})
    assert load_decoder(directory).config.head_dim == 24


def test_a_head_dim_that_the_tensors_do_not_have_is_refused_by_name(
    checkpoint: Checkpoint,
) -> None:
    directory = checkpoint("gemma3", head_dim=24)
    change(directory, head_dim=16)
    with pytest.raises(core.InvalidModelError, match=r"q_proj.weight has shape \[96, 32\]"):
        load_decoder(directory)
    change(directory, head_dim=None, num_attention_heads=5, num_key_value_heads=5)
    with pytest.raises(core.InvalidModelError, match=r"num_attention_heads 5 .*96 rows"):
        load_decoder(directory)


def test_tensors_that_contradict_one_another_are_refused_by_name(checkpoint: Checkpoint) -> None:
    directory = checkpoint("gemma3", head_dim=24)
    name = "model.layers.1.self_attn.q_proj.weight"
    change(directory, {name: mx.ones((64, 32))}, head_dim=None)
    with pytest.raises(core.InvalidModelError, match=name):
        load_decoder(directory)


def test_a_probe_looks_at_no_tensor(checkpoint: Checkpoint) -> None:
    directory = checkpoint("llama")
    code = (
        "import sys\nfrom core_mlx_native.backend import Cpu\n"
        "print(Cpu().refusal(sys.argv[1]), 'numpy' in sys.modules, 'safetensors' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["None", "False", "False"]
    (directory / "tokenizer.json").unlink()
    assert "has no tokenizer" in (Cpu().refusal(directory) or "")
    (directory / "model.safetensors").unlink()
    assert "no weights" in (Cpu().refusal(directory) or "")
