"""Stop strings that hold the text of a special token: it stops, and is not given out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.model import MlxModel

Checkpoint = Callable[..., Path]

USER, TOOL = "<|user|>", "<|tool|>"  # a special token, and an added one that is text
NEXT = {"a": "b", "b": USER, USER: "c", "c": "d", "d": "e", "e": TOOL, TOOL: "f", "f": "a"}
NEXT |= {"g": "<", "<": "|", "|": USER}
WHOLE = f"bcde{TOOL}f"  # behind "a", seven tokens
LENGTH = 7


def write(checkpoint: Checkpoint) -> Path:
    """A model that says after each text of `NEXT` the one that it names."""
    words = 110
    directory = checkpoint("llama", vocab_size=words)
    file = directory / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.add_special_tokens([AddedToken(USER, special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken(TOOL, special=False, normalized=False)])
    tokenizer.save(str(file))
    (directory / "chat_template.jinja").write_text("{{ messages[0].content }}")

    path = str(directory / "model.safetensors")
    tensors = mx.load(path)
    assert isinstance(tensors, dict)
    weights = {name: np.array(tensor) for name, tensor in tensors.items()}
    for name, array in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            array[:] = 0.0  # the layers add nothing
    weights["model.norm.weight"][:] = 1.0
    embedding, head = weights["model.embed_tokens.weight"], weights["lm_head.weight"]
    embedding[:], head[:] = 0.01, 0.0
    vocabulary = tokenizer.get_vocab()
    for place, (text, following) in enumerate(NEXT.items()):
        embedding[vocabulary[text], place] = 10.0
        head[vocabulary[following], place] = 10.0
    Path(path).unlink()
    mx.save_safetensors(path, {name: mx.array(array) for name, array in weights.items()})
    return directory


@pytest.fixture
def model(checkpoint: Checkpoint) -> Iterator[MlxModel]:
    with Cpu().load_model(write(checkpoint), core.LoadConfig(parallel_slots=2)) as loaded:
        yield loaded


def told(tokens: Sequence[core.Token], reason: str | None) -> tuple[str, str | None]:
    return "".join(token.text for token in tokens), reason


OPERATIONS = ("generate", "chat", "submit", "stream_tokens")


def answered(
    model: MlxModel, operation: str, prompt: str, **options: Any
) -> tuple[list[core.Token], str | None, int]:
    """The tokens, the reason and the number of tokens that a stream tells."""
    if operation == "submit":
        stream = model.submit(prompt, core.GenerateConfig(**options))
    elif operation == "chat":
        stream = model.chat([core.Message("user", prompt)], **options)
    elif operation == "stream_tokens":
        stream = model.stream_tokens(model.encode(prompt), **options)
    else:
        stream = model.generate(prompt, **options)
    return list(stream), stream.finish_reason, stream.metrics.generated_tokens


STOPS = [
    ("a", USER, "b", "stop"),
    ("a", f"b{USER}", "", "stop"),
    ("a", f"{USER}cd", "b", "stop"),
    ("a", f"b{USER}c", "", "stop"),
    ("a", f"de{TOOL}", "bc", "stop"),
    ("a", TOOL, "bcde", "stop"),
    ("a", f"{USER}cde{TOOL}f", "b", "stop"),
    ("g", USER, "<|", "stop"),  # which might have spelled it
    ("a", f"{USER}x", WHOLE, "length"),
    ("a", "user", WHOLE, "length"),
    ("a", "bc", "", "stop"),  # in the text, which leaves it out
]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("prompt", "stop", "left", "reason"), STOPS)
def test_streams(
    model: MlxModel, operation: str, prompt: str, stop: str, left: str, reason: str
) -> None:
    tokens, ended, count = answered(model, operation, prompt, max_tokens=LENGTH, stop=stop)
    assert told(tokens, ended) == (left, reason)
    assert count == len(tokens)


@pytest.mark.parametrize(("stop", "third"), [(USER, "stop"), (f"{USER}c", "length")])
def test_batches(model: MlxModel, stop: str, third: str) -> None:
    prompts = ["a", "g", "c", "a"]  # the third one says it as its last token
    wanted = ["b", "<|", f"de{TOOL}fab", "b"]
    options: dict[str, Any] = {"max_tokens": LENGTH, "stop": (stop, "x")}

    rows = model.batch_generate(prompts, **options)
    assert [row.text for row in rows] == wanted
    assert [row.finish_reason for row in rows] == ["stop", "stop", third, "stop"]

    streamed = [""] * len(prompts)
    for place, token in model.batch_stream(prompts, **options):
        streamed[place] += token.text
    assert streamed == wanted

    given = model.generate_tokens([model.encode(text) for text in prompts], **options)
    for sequence, row in zip(given, rows, strict=True):
        assert sequence.ids[sequence.generated.index(True) :] == tuple(t.id for t in row.tokens)
        assert sequence.finish_reason == row.finish_reason


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 1e-3, "seed": 5, "top_p": 0.9}, {"repeat_penalty": 1.1}]
)
def test_it_is_as_the_tokens_id_in_stop_tokens(model: MlxModel, options: dict[str, Any]) -> None:
    """The same tokens, their log-probabilities, the reason, and what is counted."""
    special = model.encode(core.RenderedPrompt(USER))
    assert len(special) == 1
    asked = {"max_tokens": LENGTH, "return_logprobs": True, **options}
    for prompt in ("a", "g", "c"):
        by_text = answered(model, "generate", prompt, stop=USER, **asked)
        by_id = answered(model, "generate", prompt, stop_tokens=special, **asked)
        assert by_text == by_id
