"""A tokenizer's files at the load of a model: unknown keys, new tokens, and other layouts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import pytest

import core
from core_mlx_native.backend import Cpu
from core_runtime.checkpoint import keys
from runtime.tests.tiny import Checkpoint


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Return a call for the messages logged from here on; every warning is new."""
    keys.warn_once.cache_clear()
    caplog.set_level(logging.WARNING)
    yield lambda: [record.getMessage() for record in caplog.records]
    keys.warn_once.cache_clear()


def test_a_load_reports_and_refuses(
    checkpoint: Checkpoint, logged: Callable[[], list[str]]
) -> None:
    path = checkpoint()
    file = path / "tokenizer_config.json"
    own = json.loads(file.read_text())
    file.write_text(json.dumps({**own, "new_trick": 1}))
    for _ in range(2):
        Cpu().load_model(path, core.LoadConfig()).close()
    [message] = logged()
    assert f"{file}: keys without effect here: new_trick=1" in message
    file.write_text(json.dumps({**own, "split_special_tokens": True}))
    with pytest.raises(core.UnsupportedModelError, match=r"split_special_tokens=True .*Remove"):
        Cpu().load_model(path, core.LoadConfig())


def test_a_new_token_without_a_row_is_an_error_of_its_prompt(checkpoint: Checkpoint) -> None:
    path = checkpoint()
    file = path / "tokenizer_config.json"
    file.write_text(json.dumps({"bos_token": "<new>", "eos_token": "</s>"}))
    with core.load_model(path, backend="mlx_cpu") as model:
        good, bad = model.classify(["ab", core.RenderedPrompt("<new>ab")])
        assert good.error is None
        assert "<new>" in str(bad.error)


@pytest.mark.parametrize(
    ("files", "step"),
    [
        (["vocab.json", "merges.txt"], r"pip install transformers\).*_pretrained\('.*'\)\.save"),
        (["tokenizer.model"], r"transformers sentencepiece protobuf tiktoken\)"),
        (["tekken.json"], r"mistral-common\).*mistral_format=False\)\.save_pretrained\('.*'\)"),
        (["special_tokens_map.json"], "Download or convert the model again"),
    ],
)
def test_without_tokenizer_json_the_error_says_how_to_make_one(
    checkpoint: Checkpoint, files: list[str], step: str
) -> None:
    path = checkpoint()
    (path / "tokenizer.json").unlink()
    for name in files:
        (path / name).write_text("{}")
    with pytest.raises(core.TokenizerError, match=step) as raised:
        Cpu().load_model(path, core.LoadConfig())
    assert str(path) in str(raised.value)
    assert Cpu().refusal(path) == str(raised.value)
