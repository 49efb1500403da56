"""Special tokens in prompts: plain text that is said once, and special in a RenderedPrompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.model import MlxModel

SPELLED = "<s> ab"
MEANT = core.RenderedPrompt(SPELLED)

Ask = Callable[[MlxModel, str], object]
ASKS: dict[str, Ask] = {
    "generate": lambda model, prompt: list(model.generate(prompt, max_tokens=1)),
    "submit": lambda model, prompt: list(model.submit(prompt, core.GenerateConfig(max_tokens=1))),
    "batch_generate": lambda model, prompt: model.batch_generate([prompt], max_tokens=1),
    "batch_stream": lambda model, prompt: list(model.batch_stream([prompt], max_tokens=1)),
    "classify": lambda model, prompt: model.classify([prompt]),
    "labels": lambda model, prompt: model.classify([prompt], labels=("no", "ab")),
    "classify_iter": lambda model, prompt: list(model.classify_iter([prompt])),
    "score": lambda model, prompt: model.score([prompt], [" no"]),
    "inspect_attention": lambda model, prompt: model.inspect_attention(prompt),
}


@pytest.fixture
def model(checkpoint: Callable[..., Path]) -> Iterator[MlxModel]:
    with Cpu().load_model(checkpoint("llama"), core.LoadConfig()) as loaded:
        yield loaded


@pytest.mark.parametrize("name", ASKS)
def test_a_prompt_that_spells_one_is_said_to_once(
    model: MlxModel, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    ASKS[name](model, MEANT)
    ASKS[name](model, "< s> ab")
    assert not caplog.records
    for _ in range(2):
        ASKS[name](model, SPELLED)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("core_runtime", "WARNING")
    assert "'<s>'" in record.getMessage()


@pytest.mark.parametrize("name", [name for name in ASKS if name != "inspect_attention"])
def test_in_a_rendered_prompt_they_are_special(model: MlxModel, name: str) -> None:
    assert len(model.encode(SPELLED)) == 4
    assert model.encode(MEANT) == [0, *model.encode(" ab")]
    ASKS[name](model, MEANT)
    assert model.metrics.prompt_tokens == len(model.encode(MEANT))
    ASKS[name](model, SPELLED)
    assert model.metrics.prompt_tokens == len(model.encode(SPELLED))


def test_attention_is_inspected_behind_special_tokens(model: MlxModel) -> None:
    assert model.inspect_attention(MEANT).seq_len == 2
    assert model.inspect_attention(MEANT + "<s>").seq_len == 2 + len(model.encode("<s>"))
