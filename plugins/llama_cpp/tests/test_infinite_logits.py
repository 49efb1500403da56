"""Broken logits: the tests of the engine, on a model of this backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest

import core
from core_llama_cpp.model import LlamaModel
from runtime.tests.sequences.infinite_logits import (
    Names,
    mark,
    test_a_state_of_negative_infinity_is_an_error,
    test_batches,
    test_classify,
    test_labels_that_are_broken_after_the_prompt_are_an_error,
    test_one_impossible_token_is_no_error,
    test_scores_and_hidden_states,
    test_streams_raise_at_the_token,
)

TinyGguf = Callable[..., Path]

__all__ = [
    "test_a_state_of_negative_infinity_is_an_error",
    "test_batches",
    "test_classify",
    "test_labels_that_are_broken_after_the_prompt_are_an_error",
    "test_one_impossible_token_is_no_error",
    "test_scores_and_hidden_states",
    "test_streams_raise_at_the_token",
]

NAMES = Names(
    writers=("attn_output.weight", "ffn_down.weight"),
    norm="output_norm.weight",
    embedding="token_embd.weight",
    head="output.weight",
)


@pytest.fixture
def model(tiny_gguf: TinyGguf) -> Iterator[LlamaModel]:
    change = {"tokenizer.chat_template": "{{ messages[0].content }}"}
    path = tiny_gguf(change=change, edit=partial(mark, names=NAMES))
    options = {"n_threads": 1}
    with core.load_model(path, backend="llama_cpp", parallel_slots=3, options=options) as loaded:
        yield cast("LlamaModel", loaded)
