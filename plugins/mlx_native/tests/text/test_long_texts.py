"""Prompts that are far too long are refused without being read."""

from __future__ import annotations

from pathlib import Path

import pytest

import core
from core_mlx_native.backend import Cpu
from core_runtime.tokenizer.model_tokenizer import Tokenizer


def test_every_operation_refuses_what_is_far_too_long_and_reads_none_of_it(
    smollm2_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "x" * 2_000_000
    read: list[int] = []
    original = Tokenizer._batch

    def counted(self: Tokenizer, texts: list[str], *, add_special: bool) -> list[list[int]]:
        read.append(max(map(len, texts), default=0))
        return original(self, texts, add_special=add_special)

    monkeypatch.setattr(Tokenizer, "_batch", counted)
    with Cpu().load_model(smollm2_dir, core.LoadConfig(context_len=64)) as model:
        asked: list[Exception | None] = [
            model.classify(["a", text])[1].error,
            list(model.classify_iter(["a", text]))[1].error,
            model.batch_generate(["a", text], max_tokens=1)[1].error,
            model.score([text], ["a"])[0].error,
            model.score(["a"], [text])[0].error,
        ]
        for call in (
            lambda: list(model.generate(text)),
            lambda: list(model.submit(text)),
            lambda: model.inspect_attention(text),
            lambda: list(model.chat([core.Message("user", text)])),
        ):
            with pytest.raises(core.PromptTooLongError) as caught:
                call()
            asked.append(caught.value)
    for error in asked:
        assert isinstance(error, core.PromptTooLongError)
        assert error.at_least
        assert error.length >= 2_000_000 // 81
    assert max(read) < 1000
