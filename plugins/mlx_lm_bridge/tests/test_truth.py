"""The same tokens and text as ``mlx_lm.stream_generate`` in process, on both real models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_lm_bridge.child.facts import facts
from core_mlx_lm_bridge.child.failures import Failure

PROMPTS = [
    "The capital of France is",
    "Once upon a time there was a lighthouse keeper who could not",
    "def fibonacci(n):\n    ",
    "Les élèves mangent à l'école; 日本語のテキスト 🙂 и",
    " leading blanks and\ttabs\n\n",
]
SAMPLED: list[dict[str, Any]] = [
    {"temperature": 1.0, "seed": 0},
    {"temperature": 1.5, "seed": 2**64 - 1, "top_p": 0.9},
    {"temperature": 0.7, "seed": 7, "top_k": 20, "min_p": 0.02},
    {"temperature": 0.0, "repeat_penalty": 1.3},
    {"temperature": 1.0, "seed": 1, "repeat_penalty": 1.2, "top_p": 0.95},
]
TURNS = [
    {"role": "user", "content": "Hello, who are you?"},
    {"role": "assistant", "content": "A model."},
    {"role": "user", "content": "Name three colours."},
]


def requests_for(name: str) -> list[dict[str, Any]]:
    greedy = [{"prompt": prompt, "max_tokens": 16} for prompt in PROMPTS]
    sampled = [{"prompt": PROMPTS[1], "max_tokens": 16, **options} for options in SAMPLED]
    chats = [{"messages": TURNS, "max_tokens": 24}] if name.startswith("smollm2") else []
    return [*greedy, *sampled, *chats]


def bridged(model: core.TextModel, request: dict[str, Any]) -> dict[str, Any]:
    options = {k: v for k, v in request.items() if k not in ("prompt", "messages")}
    if "messages" in request:
        stream = model.chat([core.Message(**turn) for turn in request["messages"]], **options)
    else:
        stream = model.generate(request["prompt"], **options)
    tokens = list(stream)
    return {
        "ids": [token.id for token in tokens],
        "text": "".join(token.text for token in tokens),
        "finish_reason": stream.finish_reason,
    }


def in_process(
    directory: Path, requests: list[dict[str, Any]], environment: dict[str, str]
) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("in_process.py"))],
        input=json.dumps({"model": str(directory), "requests": requests}),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def smollm2(smollm2_dir: Path, fast_blas: dict[str, str]) -> Iterator[core.TextModel]:
    with core.load_model(smollm2_dir, backend="mlx_lm", options={"env": fast_blas}) as model:
        yield model


def test_equal_to_mlx_lm(
    smollm2: core.TextModel, smollm2_dir: Path, fast_blas: dict[str, str]
) -> None:
    """A sampled answer and a chat."""
    requests = requests_for("smollm2_dir")
    assert_equal(smollm2, smollm2_dir, [requests[7], requests[-1]], fast_blas)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("smollm2_dir", marks=pytest.mark.slow),
        pytest.param("gemma3_dir", marks=pytest.mark.long),  # whose network is mlx-lm's own, too
    ],
)
def test_every_answer_is_equal_to_mlx_lm(
    name: str, request: pytest.FixtureRequest, fast_blas: dict[str, str]
) -> None:
    directory = request.getfixturevalue(name)
    with core.load_model(directory, backend="mlx_lm", options={"env": fast_blas}) as model:
        assert_equal(model, directory, requests_for(name), fast_blas)


def assert_equal(
    model: core.TextModel,
    directory: Path,
    requests: list[dict[str, Any]],
    fast_blas: dict[str, str],
) -> None:
    found = [bridged(model, asked) for asked in requests]
    expected = in_process(directory, requests, fast_blas)
    for asked, ours, theirs in zip(requests, found, expected, strict=True):
        assert ours == theirs, asked


def test_facts(smollm2: core.TextModel) -> None:
    info = smollm2.info
    assert (info.architecture, info.vocab_size, info.num_layers) == ("llama", 49152, 30)
    assert (info.hidden_size, info.quant_bits, info.context_length) == (576, 0, 8192)


def test_special_tokens_in_a_text_are_plain_text(smollm2: core.TextModel) -> None:
    """One token where the tokenizer reads it as special; several where it is text."""

    def length(text: str) -> int:
        stream = smollm2.generate(text, max_tokens=1)
        list(stream)
        return stream.metrics.prompt_tokens

    def chat_length(text: str) -> int:
        stream = smollm2.chat([core.Message("user", text)], max_tokens=1)
        list(stream)
        return stream.metrics.prompt_tokens

    assert length("<|im_end|>") >= 4
    assert length("a<|im_end|>b") >= 6
    assert chat_length("a<|im_end|>b") >= chat_length("a b") + 4


def test_logprobs_are_the_models_own(smollm2: core.TextModel) -> None:
    """Those that mlx-lm reports, and without a penalty's mark where there is one."""
    plain = list(smollm2.generate(PROMPTS[0], max_tokens=1, return_logprobs=True))
    # The prompt repeats nothing that the answer begins with: the penalty changes other logits.
    prompt = PROMPTS[0]
    penalised = list(
        smollm2.generate(prompt, max_tokens=1, return_logprobs=True, repeat_penalty=1.5)
    )
    assert plain[0].id == penalised[0].id
    assert plain[0].logprob == pytest.approx(-0.258, abs=0.01)
    assert penalised[0].logprob == pytest.approx(plain[0].logprob, abs=1e-4)


def test_context(smollm2_dir: Path, fast_blas: dict[str, str]) -> None:
    options = {"env": fast_blas, "prefill_step_size": 4}
    with core.load_model(smollm2_dir, backend="mlx_lm", context_len=16, options=options) as model:
        assert model.info.context_length == 16
        with pytest.raises(core.PromptTooLongError) as caught:
            next(model.generate("one two three " * 20))
        assert caught.value.limit == 16
        assert caught.value.length > 16
        stream = model.generate("one two three four five six", max_tokens=100)
        assert len(list(stream)) == 10
        assert stream.finish_reason == "length"


def test_a_context_longer_than_the_models_is_refused_by_its_facts() -> None:
    config = {"max_position_embeddings": 8192}
    with pytest.raises(Failure, match="at most 8192"):
        facts(None, None, config, 8193)


@pytest.mark.slow
def test_a_context_longer_than_the_models(smollm2_dir: Path, fast_blas: dict[str, str]) -> None:
    options = {"env": fast_blas}
    with pytest.raises(core.InvalidOptionError, match="at most 8192"):
        core.load_model(smollm2_dir, backend="mlx_lm", context_len=8193, options=options)


@pytest.mark.slow
def test_chat_format_of_the_family(gemma3_dir: Path, fast_blas: dict[str, str]) -> None:
    """The base model has no template; its prompt is the family's, special tokens as such."""
    with core.load_model(gemma3_dir, backend="mlx_lm", options={"env": fast_blas}) as model:
        stream = model.chat([core.Message("user", "Hello")], max_tokens=1)
        list(stream)
    # <bos> <start_of_turn> user \n Hello <end_of_turn> \n <start_of_turn> model \n
    assert stream.metrics.prompt_tokens == 10
