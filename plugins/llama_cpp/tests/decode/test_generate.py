"""Greedy text against llama_cpp.Llama's own; prompts in chunks, and the context's end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

import core
from core.errors import PromptTooLongError
from core_llama_cpp.model import LlamaModel

TEXTS = [
    "The capital of France is",
    "Once upon a time there was",
    "Water boils at",
    "def add(a, b):",
    "The three primary colours are",
    "In 1969, a man",
    "A recipe for bread:",
    "Dear Sir or Madam,",
    "The largest planet is",
    "To be or not to be,",
]


def greedy(model: LlamaModel, prompt: str, count: int = 32) -> list[int]:
    return [token.id for token in model.generate(prompt, max_tokens=count)]


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("smollm2", TEXTS[:3]),
        pytest.param("smollm2", TEXTS, marks=pytest.mark.slow),
        pytest.param("gemma3", TEXTS, marks=pytest.mark.slow),
    ],
    ids=["smollm2-some", "smollm2", "gemma3"],
)
def test_greedy_tokens_are_those_of_llama(
    name: str, texts: list[str], request: pytest.FixtureRequest
) -> None:
    model: LlamaModel = request.getfixturevalue(f"{name}_model")
    llama = request.getfixturevalue("plain_llama")(request.getfixturevalue(f"{name}_gguf"), model)
    stops = model._loaded.stop_ids
    for text in texts:
        ids = model.encode(text)
        llama.reset()
        wanted: list[int] = []
        for token in llama.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0):
            if token in stops or len(wanted) == 32:
                break
            wanted.append(token)
        assert greedy(model, text) == wanted, text


def test_a_prompt_in_chunks_is_the_same_prompt(tiny_gguf: Callable[..., Path]) -> None:
    """Longer than a batch: it is prefilled in several steps, beside a stream that runs."""
    path = tiny_gguf()
    long = "ab!" * 140
    with _load(path, n_batch=32) as small, _load(path, n_batch=512) as large:
        wanted = greedy(large, long, 20)
        assert len(wanted) == 20
        assert greedy(small, long, 20) == wanted
        beside = small.generate("a b", max_tokens=60)
        first = next(beside)
        assert greedy(small, long, 20) == wanted
        assert [first.id, *(token.id for token in beside)] == greedy(large, "a b", 60)


def test_the_context_ends_a_generation(tiny_gguf: Callable[..., Path]) -> None:
    path = tiny_gguf()
    with _load(path, context_len=64) as model:
        prompt = "!" * 60
        stream = model.generate(prompt, max_tokens=30)
        assert (len(list(stream)), stream.finish_reason) == (4, "length")
        stream = model.generate("!" * 64, max_tokens=30)
        assert (len(list(stream)), stream.finish_reason) == (1, "length")
        with pytest.raises(PromptTooLongError):
            next(model.generate("!" * 65))
        assert model.generate("!").metrics.generated_tokens == 0


def test_rotation_drops_the_oldest_position(tiny_gguf: Callable[..., Path]) -> None:
    """Keys stay as they were computed, so only what is looked at is the window."""
    path = tiny_gguf()
    with _load(path, context_len=64, context_overflow="rotate", parallel_slots=2) as model:
        stream = model.generate("ab!", max_tokens=200)
        tokens = [token.id for token in stream]
        assert (len(tokens), stream.finish_reason) == (200, "length")
        model.equal_rows = False
        rows = model.batch_generate(["ab!", "ab!"], max_tokens=200)
        assert [[token.id for token in row.tokens] for row in rows] == [tokens, tokens]
        pool = model._passes._pool
        assert model._owner.run(lambda: pool.cells) == pool.size
    with _load(path, context_len=512) as whole:
        free = greedy(whole, "ab!", 200)
    begin = 64 - 3
    assert tokens[:begin] == free[:begin]
    assert tokens != free  # a window of 64 is not a context of 512


def _load(path: Path, n_batch: int = 512, **options: object) -> LlamaModel:
    own = {"n_threads": 1, "n_batch": n_batch}
    model = core.load_model(path, backend="llama_cpp", options=own, **options)  # type: ignore[arg-type]
    return cast("LlamaModel", model)


def test_no_awaited_stream_stays_however_it_ends(
    tiny_model: LlamaModel, left_of_streams: Callable[..., dict[str, int]]
) -> None:
    left = left_of_streams(tiny_model, "a")
    assert not any(left.values()), left
