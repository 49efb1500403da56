"""``close()`` gives back what the load took, whatever the caller still holds."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.model import MlxModel
from core_runtime.engine import Engine

Checkpoint = Callable[..., Path]
Use = Callable[[MlxModel], object]
Tensors = dict[str, mx.array]

# About ten megabytes, so that one percent is less than the keys and values of `PROMPTS`.
SIZES = {
    "vocab_size": 4096,
    "hidden_size": 256,
    "intermediate_size": 512,
    "max_position_embeddings": 512,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama-untied": {"tie_word_embeddings": False, "attention_bias": True},
    "llama-tied": {"tie_word_embeddings": True},
    "gemma3-tied": {"head_dim": 64},
    "gemma3-untied": {"head_dim": 64, "tie_word_embeddings": False},
}
PROMPTS = ["ab no " * 30, "ab", "abc no", "", "x " * 30, "no"]
Q4: dict[str, Any] = {"bits": 4, "group_size": 64}


def active() -> int:
    """Bytes that arrays hold, once what earlier tests left behind is collected."""
    gc.collect()
    return mx.get_active_memory()


def load(directory: Path, **options: Any) -> MlxModel:
    return Cpu().load_model(directory, core.LoadConfig(options=options))


def stored(directory: Path) -> int:
    """Bytes of the weights on disk, which are float32."""
    return sum(file.stat().st_size for file in directory.glob("*.safetensors"))


def quantize(directory: Path) -> Path:
    """A copy of a plain checkpoint with every matrix packed."""
    packed = directory.with_name("packed")
    shutil.copytree(directory, packed)
    loaded = mx.load(str(directory / "model.safetensors"))
    assert isinstance(loaded, dict)
    tensors: Tensors = {}
    for name, tensor in loaded.items():
        if tensor.ndim != 2:
            tensors[name] = tensor
            continue
        layer = name.removesuffix(".weight")
        for part, array in zip(
            ("weight", "scales", "biases"), mx.quantize(tensor, **Q4), strict=True
        ):
            tensors[f"{layer}.{part}"] = array
    mx.save_safetensors(str(packed / "model.safetensors"), tensors)
    config = {**json.loads((packed / "config.json").read_text()), "quantization": Q4}
    (packed / "config.json").write_text(json.dumps(config))
    return packed


def nothing(model: MlxModel) -> object:
    return None


def classified_with_labels(model: MlxModel) -> object:
    return model.classify(PROMPTS, labels=["ab", "no", "abc no ab", "abc no x"])


def logits(model: MlxModel) -> object:
    return model.classify(PROMPTS, return_logits=True, return_logprobs=True, temperature=1.0)


def keys(model: MlxModel) -> object:
    return [model.inspect_attention(prompt) for prompt in PROMPTS if prompt]


def generated(model: MlxModel) -> object:
    ended, half_read = (model.generate(PROMPTS[0], max_tokens=3) for _ in range(2))
    tokens = list(ended)
    tokens.append(next(half_read))
    return ended, half_read, tokens, model.batch_generate(PROMPTS, max_tokens=3)


def bound_methods(model: MlxModel) -> object:
    return model.classify, model.inspect_attention, model.info, model.choices(), model.memory()


def errors(model: MlxModel) -> object:
    found: list[core.CoreError] = []
    for prompt in ("", "x" * 600):
        try:
            model.inspect_attention(prompt)
        except core.RequestError as error:
            found.append(error)
    return [found, [result.error for result in model.classify(["", "x" * 600, "ab"])]]


def everything(model: MlxModel) -> object:
    return [use(model) for use in USES]


USES: tuple[Use, ...] = (
    *(nothing, classified_with_labels, logits, keys, generated, bound_methods, errors),
)


def assert_closing_frees(directory: Path, size: int, use: Use, **options: Any) -> None:
    before = active()
    model = load(directory, **options)
    assert abs(active() - before - size) < 0.02 * size  # held once, and the measure sees it
    held = use(model)
    model.close()
    assert abs(active() - before) < 0.01 * size
    assert mx.get_cache_memory() == 0
    model.close()
    assert abs(active() - before) < 0.01 * size
    del held, model  # both lived until here


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_the_memory_of_the_weights_comes_back(checkpoint: Checkpoint, use: Use) -> None:
    directory = checkpoint("llama", **SIZES)
    assert_closing_frees(directory, stored(directory), use)


@pytest.mark.parametrize("family", FAMILIES)
def test_that_of_every_kind_of_head(checkpoint: Checkpoint, family: str) -> None:
    directory = checkpoint(family.split("-")[0], **{**SIZES, **FAMILIES[family]})
    assert_closing_frees(directory, stored(directory), everything)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dequantize", [True, False], ids=["dequantised", "packed"])
def test_that_of_quantised_weights(checkpoint: Checkpoint, family: str, dequantize: bool) -> None:
    plain = checkpoint(family.split("-")[0], **{**SIZES, **FAMILIES[family]})
    packed = quantize(plain)
    assert stored(packed) < stored(plain) / 4
    size = stored(plain if dequantize else packed)
    assert_closing_frees(packed, size, everything, dequantize=dequantize)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_that_of_a_smaller_dtype(checkpoint: Checkpoint, dtype: str) -> None:
    directory = checkpoint("gemma3", **SIZES)
    assert_closing_frees(directory, stored(directory) // 2, classified_with_labels, dtype=dtype)


def test_a_with_block_closes(checkpoint: Checkpoint) -> None:
    directory = checkpoint("llama", **SIZES)
    before = active()
    with load(directory) as model:
        model.classify(PROMPTS)
        assert active() - before > 0.99 * stored(directory)
    assert abs(active() - before) < 0.01 * stored(directory)
    assert model.model_type == "llama"  # still referenced, and still telling


def test_one_of_two_models_leaves_the_other_alone(checkpoint: Checkpoint) -> None:
    first, second = (checkpoint("llama", name=name, **SIZES) for name in ("first", "second"))
    before = active()
    kept, closed = load(first), load(second)
    results = kept.classify(PROMPTS, labels=["ab", "no"])
    closed.classify(PROMPTS)
    closed.close()
    assert abs(active() - before - stored(first)) < 0.01 * stored(first)
    again = kept.classify(PROMPTS, labels=["ab", "no"])
    assert [result.label for result in again] == [result.label for result in results]
    kept.close()
    assert abs(active() - before) < 0.01 * stored(first)


def test_opening_and_closing_many_times_adds_nothing(checkpoint: Checkpoint) -> None:
    directory = checkpoint("gemma3", **SIZES)
    before = active()
    for _ in range(4):
        model = load(directory)
        model.classify(PROMPTS, labels=["ab", "no"])
        model.close()
    assert abs(active() - before) < 0.01 * stored(directory)


@pytest.mark.slow
@pytest.mark.parametrize("use", [classified_with_labels, logits], ids=lambda use: use.__name__)
def test_that_of_a_real_gemma(gemma3_dir: Path, use: Use) -> None:
    assert_closing_frees(gemma3_dir, stored(gemma3_dir), use)


def test_no_awaited_stream_stays_however_it_ends(
    checkpoint: Checkpoint, left_of_streams: Callable[..., dict[str, int]]
) -> None:
    with load(checkpoint()) as model:
        left = left_of_streams(model)
    assert not any(left.values()), left


def test_a_stream_that_was_refused_and_is_never_read_does_not_stay(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error waits in it, with the frames of where it began."""

    def refused(self: Engine, jobs: object) -> None:
        raise core.ModelClosedError

    with load(checkpoint()) as model:
        monkeypatch.setattr(Engine, "submit", refused)
        stream = weakref.ref(model.submit("ab"))
        gc.collect()
        assert stream() is None
