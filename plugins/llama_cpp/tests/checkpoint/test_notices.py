"""What a model's files ask for and does not happen is said at load, or the model is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import core
from core.errors import UnsupportedModelError
from core_llama_cpp.checkpoint.probe import refusal

TinyGguf = Callable[..., Path]


@pytest.mark.parametrize(
    ("change", "more", "name", "reason"),
    [
        ({"llama.pooling_type": 3}, {}, "pooling", "llama.pooling_type is last"),
        ({"llama.pooling_type": 1}, {}, "pooling", "llama.pooling_type is mean"),
        ({"tokenizer.ggml.add_eos_token": True}, {}, "EOS after prompts", "add_eos_token is true"),
        ({}, {"adapter.lora.prompt_prefix": "Sort: "}, "adapter's prompt prefix", "'Sort: '"),
    ],
)
def test_what_is_not_applied_is_said_once(
    tiny_gguf: TinyGguf,
    lora_gguf: TinyGguf,
    caplog: pytest.LogCaptureFixture,
    change: dict[str, object],
    more: dict[str, object],
    name: str,
    reason: str,
) -> None:
    path, adapter = tiny_gguf(change=change), lora_gguf(more=more) if more else None
    with core.load_model(path, backend="llama_cpp", adapter_path=adapter) as model:
        assert isinstance(model, core.Explaining)
        [choice] = [choice for choice in model.choices() if choice.value.startswith("not ")]
        assert list(model.generate("ab", max_tokens=1))
    assert choice.name == name
    assert reason in choice.reason
    [record] = [item for item in caplog.records if item.levelno == logging.WARNING]
    assert record.getMessage() == f"{path}: {name} {choice.value}: {choice.reason}"


def test_a_plain_model_needs_no_word(tiny_gguf: TinyGguf, caplog: pytest.LogCaptureFixture) -> None:
    harmless = {
        "llama.pooling_type": 0,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_sep_token": False,
        "general.sampling.temp": 0.7,
    }
    with core.load_model(tiny_gguf(change=harmless), backend="llama_cpp") as model:
        assert isinstance(model, core.Explaining)
        assert not [choice for choice in model.choices() if choice.value.startswith("not ")]
    assert not caplog.records


@pytest.mark.parametrize(
    "change", [{"llama.pooling_type": 4}, {"llama.classifier.output_labels": ["yes", "no"]}]
)
def test_a_model_that_ranks_is_refused(tiny_gguf: TinyGguf, change: dict[str, object]) -> None:
    path = tiny_gguf(change=change)
    with pytest.raises(UnsupportedModelError, match="its own classifier head"):
        core.load_model(path, backend="llama_cpp")
    assert "llama-server --reranking" in (refusal(path) or "")
