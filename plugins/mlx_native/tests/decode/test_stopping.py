"""timeout, cancel and interrupts are answered while a prompt is tokenised, and while it is read.

Each test holds the work until the answer is there: no answer waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import core
from core_mlx_native.backend import Cpu
from core_mlx_native.decode import prefilling
from core_mlx_native.model import MlxModel
from core_mlx_native.network.decoder import Layer
from core_runtime.text import tokenising
from core_runtime.tokenizer.model_tokenizer import Tokenizer

PATIENCE = 60.0  # seconds after which something hangs
PROMPTS = ["ab no ab", "no ab"]
AB = [core.Message("user", "ab no ab")]
TEMPLATE = "{{ messages[0].content }}"

Ask = Callable[..., list[Exception | None]]  # what each row, or the call, ends with


def raised(run: Callable[[], object]) -> list[Exception | None]:
    try:
        run()
    except core.RequestError as error:
        return [error]
    return [None]


def errors(rows: Any) -> list[Exception | None]:
    return [row.error for row in rows]


def submitted(model: MlxModel, **options: Any) -> list[Exception | None]:
    stream = model.submit(PROMPTS[0], core.GenerateConfig(max_tokens=2, **options))
    return raised(lambda: list(stream))


ASKS: dict[str, Ask] = {
    "generate": lambda model, **options: raised(
        lambda: list(model.generate(PROMPTS[0], max_tokens=2, **options))
    ),
    "chat": lambda model, **options: raised(lambda: list(model.chat(AB, max_tokens=2, **options))),
    "submit": submitted,
    "batch_generate": lambda model, **options: errors(
        model.batch_generate(PROMPTS, max_tokens=2, **options)
    ),
    "batch_stream": lambda model, **options: raised(
        lambda: list(model.batch_stream(PROMPTS, max_tokens=2, **options))
    ),
    "classify": lambda model, **options: errors(model.classify(PROMPTS, **options)),
    "labels": lambda model, **options: errors(
        model.classify(PROMPTS, labels=("no", "ab ab"), **options)
    ),
    "classify_iter": lambda model, **options: errors(model.classify_iter(PROMPTS, **options)),
    "score": lambda model, **options: errors(model.score(PROMPTS, ["no", "ab"], **options)),
    "inspect_attention": lambda model, **options: raised(
        lambda: model.inspect_attention(PROMPTS[0], **options)
    ),
}


class Held:
    """Work that begins and does not end before it may."""

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()

    def here(self) -> None:
        self.begun.set()
        assert self.release.wait(PATIENCE)

    def is_set(self) -> bool:
        """As a cancel: once the work has begun."""
        return self.begun.is_set()


@pytest.fixture
def model(checkpoint: Callable[..., Path]) -> Iterator[MlxModel]:
    directory = checkpoint("llama")
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    with Cpu().load_model(directory, core.LoadConfig()) as loaded:
        yield loaded


@pytest.fixture
def held() -> Iterator[Held]:
    found = Held()
    yield found
    found.release.set()


@pytest.fixture
def held_tokenizer(held: Held, monkeypatch: pytest.MonkeyPatch) -> Held:
    """Every text is a large one."""
    monkeypatch.setattr(tokenising, "_BLOCK", 0)
    original = Tokenizer._batch

    def batch(self: Tokenizer, texts: list[str], *, add_special: bool) -> list[list[int]]:
        if any(texts):
            held.here()
        return original(self, texts, add_special=add_special)

    monkeypatch.setattr(Tokenizer, "_batch", batch)
    return held


@pytest.fixture
def held_layer(held: Held, monkeypatch: pytest.MonkeyPatch) -> Held:
    original = Layer.__call__

    def call(self: Layer, *given: Any) -> Any:
        held.here()
        return original(self, *given)

    monkeypatch.setattr(Layer, "__call__", call)
    return held


@pytest.mark.parametrize("name", ASKS)
def test_a_cancel_is_answered_while_a_prompt_is_tokenised(
    model: MlxModel, held_tokenizer: Held, name: str
) -> None:
    found = ASKS[name](model, cancel=held_tokenizer)
    assert all(type(error) is core.GenerationCancelled for error in found)
    assert not held_tokenizer.release.is_set()


@pytest.mark.parametrize("name", ASKS)
def test_a_timeout_is_answered_while_a_prompt_is_tokenised(
    model: MlxModel, held_tokenizer: Held, name: str
) -> None:
    found = ASKS[name](model, timeout=0.3)
    assert all(type(error) is core.GenerationTimeout for error in found)
    assert held_tokenizer.begun.is_set()
    assert not held_tokenizer.release.is_set()


@pytest.mark.parametrize("name", ASKS)
def test_a_cancel_is_answered_while_a_prompt_is_read(
    model: MlxModel, held_layer: Held, name: str
) -> None:
    found = ASKS[name](model, cancel=held_layer)
    assert all(type(error) is core.GenerationCancelled for error in found)
    assert not held_layer.release.is_set()


@pytest.mark.parametrize("name", ASKS)
def test_a_timeout_is_answered_while_a_prompt_is_read(
    model: MlxModel, held_layer: Held, name: str
) -> None:
    found = ASKS[name](model, timeout=0.3)
    assert all(type(error) is core.GenerationTimeout for error in found)
    assert not held_layer.release.is_set()


class Interrupting:
    """A cancel that raises what Ctrl-C raises, where the caller waits."""

    def __init__(self, held: Held) -> None:
        self._held, self._caller = held, threading.current_thread()

    def is_set(self) -> bool:
        if self._held.begun.is_set() and threading.current_thread() is self._caller:
            raise KeyboardInterrupt
        return False


@pytest.mark.parametrize("name", ["classify", "score", "inspect_attention"])
def test_an_interrupted_reading_is_not_gone_on_with(
    model: MlxModel, held_layer: Held, name: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        ASKS[name](model, cancel=Interrupting(held_layer))
    layers: list[object] = []
    held_layer.here = lambda: layers.append(1)  # type: ignore[method-assign]
    held_layer.release.set()
    model.memory()  # the thread has come to its end
    assert len(layers) == 0


@pytest.mark.parametrize("stopped", [[0], [1], [0, 1]])
def test_a_prefill_ends_between_two_layers_when_nobody_wants_it(
    model: MlxModel, monkeypatch: pytest.MonkeyPatch, stopped: list[int]
) -> None:
    """Of a group that still has a row the other is dropped, and the row gets what it gets alone."""
    monkeypatch.setattr(prefilling, "LOOK_SECONDS", 0.0)
    expected = [list(model.generate(prompt, max_tokens=3)) for prompt in PROMPTS]
    cancels = [threading.Event() for _ in PROMPTS]
    layers: list[int] = []
    original = Layer.__call__

    def call(self: Layer, x: mx.array, *given: Any) -> Any:
        if len(x) == len(PROMPTS) and x.shape[1] > 1:
            layers.append(1)
            for row in stopped:
                cancels[row].set()
        return original(self, x, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Layer, "__call__", call)
        found = [read(stream) for stream in together(model, cancels)]
    assert len(layers) == (1 if len(stopped) == 2 else model.info.num_layers)
    for row, (tokens, error) in enumerate(found):
        assert isinstance(error, core.GenerationCancelled) == (row in stopped)
        assert row in stopped or tokens == expected[row]
    assert [list(model.generate(prompt, max_tokens=3)) for prompt in PROMPTS] == expected


def together(model: MlxModel, cancels: list[threading.Event]) -> list[core.TokenStream]:
    """Requests that are queued while the model's thread is busy: one group prefills them."""
    gate = threading.Event()

    def busy() -> None:
        gate.wait(PATIENCE)

    model._owner.post(busy)
    streams: list[core.TokenStream] = [
        model.submit(prompt, core.GenerateConfig(max_tokens=3, cancel=cancel))
        for prompt, cancel in zip(PROMPTS, cancels, strict=True)
    ]
    gate.set()
    return streams


def read(stream: core.TokenStream) -> tuple[list[core.Token], Exception | None]:
    tokens: list[core.Token] = []
    try:
        tokens.extend(stream)
    except core.RequestError as error:
        return tokens, error
    return tokens, None
