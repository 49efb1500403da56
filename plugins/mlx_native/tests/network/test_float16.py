"""Gemma in float16: its residual stream passes 65504, float16's largest number."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.loaded import load_decoder
from core_mlx_native.model import MlxModel
from core_mlx_native.network.prefill import prefill
from core_runtime.checkpoint import families
from core_runtime.tokenizer.model_tokenizer import Tokenizer

Checkpoint = Callable[..., Path]
Logits = npt.NDArray[np.float32]

PROMPTS = ["ab no ab", "a", "no no no no no no no no no no", "x y z", "ab" * 12]
LABELS = ["ab", "no", "abc no"]
LARGEST = 65504
KINDS: dict[str, dict[str, Any]] = {
    "gemma3_text": {},
    "gemma2": {"model_type": "gemma2", "layer_types": None, "rope_local_base_freq": None},
}
HEADLINES = Path(__file__).parents[4] / "examples" / "headlines.jsonl"
# Weights and products round by 2**-11 of their size, in logits of up to 30: measured, 0.03.
TOLERANCE = 0.1

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def loud(checkpoint: Checkpoint) -> Callable[[str], Path]:
    """Writes a Gemma whose layers each add tens of thousands to the residual stream."""

    def write(kind: str) -> Path:
        directory = checkpoint("gemma3", **KINDS[kind])
        file = directory / "model.safetensors"
        tensors = mx.load(str(file))
        assert isinstance(tensors, dict)
        for name in tensors:
            if "post_feedforward" in name or "post_attention" in name:
                tensors[name] = 25_000 + 1000 * tensors[name]
        mx.eval(tensors)  # before the file that they come from is written over
        mx.save_safetensors(str(file), tensors)
        return directory

    return write


def load(directory: Path, dtype: str) -> MlxModel:
    return Cpu().load_model(directory, core.LoadConfig(options={"dtype": dtype}))


def logits_of(directory: Path, dtype: str, prompts: Sequence[str] = PROMPTS) -> Logits:
    """Float32 [prompts, vocabulary]."""
    with load(directory, dtype) as model:
        results = model.classify(prompts, return_logits=True)
    assert [result.error for result in results] == [None] * len(prompts)
    return np.stack([np.asarray(result.logits, np.float32) for result in results])


def largest_hidden(directory: Path) -> list[float]:
    """Each prompt's largest number in the residual stream behind the last layer, in float32."""
    decoder = load_decoder(directory)
    prompts = Tokenizer.from_directory(directory).encode_batch(PROMPTS)
    return [float(np.abs(np.array(prefill(decoder, [ids]).hidden)).max()) for ids in prompts]


@every_kind
def test_these_models_pass_what_float16_holds(
    kind: str, loud: Callable[[str], Path], checkpoint: Checkpoint
) -> None:
    assert min(largest_hidden(loud(kind))) > LARGEST
    assert max(largest_hidden(checkpoint("gemma3", name="plain", **KINDS[kind]))) < LARGEST / 100


@every_kind
def test_logits_are_those_of_float32(kind: str, loud: Callable[[str], Path]) -> None:
    directory = loud(kind)
    exact, half = (logits_of(directory, dtype) for dtype in ("float32", "float16"))
    assert not np.isnan(half).any()
    assert 0 < np.abs(exact - half).max() < TOLERANCE
    assert exact.std(axis=-1).min() > 10 * TOLERANCE  # there is something to tell apart


@every_kind
def test_labels_are_those_of_float32(kind: str, loud: Callable[[str], Path]) -> None:
    directory = loud(kind)
    with load(directory, "float32") as exact, load(directory, "float16") as half:
        for left, right in zip(
            exact.classify(PROMPTS, labels=LABELS),
            half.classify(PROMPTS, labels=LABELS),
            strict=True,
        ):
            assert left.logprobs is not None
            assert right.logprobs == pytest.approx(left.logprobs, abs=2 * TOLERANCE)


@every_kind
def test_a_residual_stream_in_float16_is_every_rows_error(
    kind: str, loud: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = dataclasses.replace(families.FAMILIES[kind], overflows_float16=False)
    monkeypatch.setattr(
        "core_runtime.checkpoint.config.FAMILIES", {**families.FAMILIES, kind: wrong}
    )
    directory = loud(kind)
    with load(directory, "float16") as model:
        results = model.classify(PROMPTS)
    assert [type(result.error) for result in results] == [core.InvalidModelError] * len(PROMPTS)
    assert all("float32" in str(result.error) for result in results)
    logits_of(directory, "float32")  # what they are told to do helps


@pytest.mark.slow
def test_a_real_gemma(gemma3_dir: Path) -> None:
    lines = HEADLINES.read_text(encoding="utf-8").splitlines()[::9]
    headlines = [json.loads(line)["text"] for line in lines]
    assert len(headlines) == 8
    exact, half = (logits_of(gemma3_dir, dtype, headlines) for dtype in ("float32", "float16"))
    assert 0 < np.abs(exact - half).max() < TOLERANCE
    assert exact.argmax(axis=-1).tolist() == half.argmax(axis=-1).tolist()
