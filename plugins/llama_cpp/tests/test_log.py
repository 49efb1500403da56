"""What programs hear through the logger of this package."""

from __future__ import annotations

import logging

import pytest

from core_llama_cpp.model import LlamaModel

PROMPTS = ["one two three", "four five", "one two six"]


def test_passes_and_calls_are_told(
    tiny_model: LlamaModel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="core_llama_cpp")
    tiny_model.classify(PROMPTS)
    told = [record.getMessage() for record in caplog.records if record.name == "core_llama_cpp"]
    batches = [line.split() for line in told if line.startswith("a batch of ")]
    assert sum(int(words[3]) for words in batches) == len(PROMPTS)
    cost = tiny_model.metrics
    computed = cost.prompt_tokens - cost.cached_prompt_tokens
    assert sum(int(words[6]) for words in batches) == computed
    assert told[-1].startswith("llama_cpp: a call took ")
