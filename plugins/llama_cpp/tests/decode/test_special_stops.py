"""Stop strings that hold the text of a special token: it stops, and is not given out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

import core
from core_llama_cpp.model import LlamaModel

TinyGguf = Callable[..., Any]

USER, TOOL = "<|user|>", "<|tool|>"  # a control token, and one that is defined by a user: text
LETTERS = [chr(code) for code in range(33, 127)]
WORDS = ["<s>", "</s>", *LETTERS, "Ġ", USER, TOOL]
NEXT = {"a": "b", "b": USER, USER: "c", "c": "d", "d": "e", "e": TOOL, TOOL: "f", "f": "a"}
NEXT |= {"g": "<", "<": "|", "|": USER}
WHOLE = f"bcde{TOOL}f"  # behind "a", seven tokens
LENGTH = 7
_CONTROL, _USER_DEFINED, _NORMAL = 3, 4, 1


def lead(weights: dict[str, np.ndarray]) -> None:
    """Let each text of `NEXT` be followed by the one that it names; the layers add nothing."""
    for name, array in weights.items():
        if name.endswith(("attn_output.weight", "ffn_down.weight")):
            array[:] = 0.0
    weights["output_norm.weight"][:] = 1.0
    embedding, head = weights["token_embd.weight"], weights["output.weight"]
    embedding[:], head[:] = 0.01, 0.0
    for place, (text, following) in enumerate(NEXT.items()):
        embedding[WORDS.index(text), place] = 10.0
        head[WORDS.index(following), place] = 10.0


@pytest.fixture
def model(tiny_gguf: TinyGguf) -> Iterator[LlamaModel]:
    kinds = [_CONTROL, _CONTROL, *[_NORMAL] * (len(LETTERS) + 1), _CONTROL, _USER_DEFINED]
    change = {
        "tokenizer.ggml.tokens": WORDS,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": ["Ġ a"],
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }
    path = tiny_gguf(change=change, words=WORDS, edit=lead)
    with core.load_model(
        path, backend="llama_cpp", parallel_slots=2, options={"n_threads": 1}
    ) as loaded:
        yield cast("LlamaModel", loaded)


def answered(
    model: LlamaModel, operation: str, prompt: str, **options: Any
) -> tuple[list[core.Token], str | None, int]:
    """The tokens, the reason and the number of tokens that a stream tells."""
    if operation == "submit":
        stream = model.submit(prompt, core.GenerateConfig(**options))
    elif operation == "chat":
        stream = model.chat([core.Message("user", prompt)], **options)
    else:
        stream = model.generate(prompt, **options)
    return list(stream), stream.finish_reason, stream.metrics.generated_tokens


@pytest.mark.parametrize("operation", ["generate", "chat", "submit"])
@pytest.mark.parametrize(
    ("prompt", "stop", "left", "reason"),
    [
        ("a", USER, "b", "stop"),
        ("a", f"b{USER}", "", "stop"),
        ("a", f"{USER}cd", "b", "stop"),
        ("a", TOOL, "bcde", "stop"),
        ("a", f"e{TOOL}", "bcd", "stop"),
        ("g", USER, "<|", "stop"),  # which might have spelled it
        ("a", f"{USER}x", WHOLE, "length"),
        ("a", "user", WHOLE, "length"),
        ("a", "bc", "", "stop"),  # in the text, which leaves it out
    ],
)
def test_streams(
    model: LlamaModel, operation: str, prompt: str, stop: str, left: str, reason: str
) -> None:
    tokens, ended, count = answered(model, operation, prompt, max_tokens=LENGTH, stop=stop)
    assert ("".join(token.text for token in tokens), ended) == (left, reason)
    assert count == len(tokens)


def test_batches(model: LlamaModel) -> None:
    prompts, wanted = ["a", "g", "c", "a"], ["b", "<|", f"de{TOOL}fab", "b"]
    options: dict[str, Any] = {"max_tokens": LENGTH, "stop": (USER, "x")}
    rows = model.batch_generate(prompts, **options)
    assert [(row.text, row.finish_reason) for row in rows] == [(text, "stop") for text in wanted]
    streamed = [""] * len(prompts)
    for row, token in model.batch_stream(prompts, **options):
        streamed[row] += token.text
    assert streamed == wanted


@pytest.mark.parametrize("options", [{}, {"temperature": 1e-3, "seed": 5, "top_p": 0.9}])
def test_it_is_as_the_tokens_id_in_stop_tokens(model: LlamaModel, options: dict[str, Any]) -> None:
    """The same tokens, their log-probabilities, the reason, and what is counted."""
    asked = {"max_tokens": LENGTH, "return_logprobs": True, **options}
    special = model.encode(core.RenderedPrompt(USER))
    for prompt in ("a", "g", "c"):
        by_text = answered(model, "generate", prompt, stop=USER, **asked)
        by_id = answered(model, "generate", prompt, stop_tokens=special, **asked)
        assert by_text == by_id
