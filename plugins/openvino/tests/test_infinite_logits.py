"""Broken logits: the tests of the engine, on a model of this backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from safetensors.numpy import load_file, save_file

import core
from core_openvino.model import OpenVinoModel
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
from runtime.tests.tiny import Checkpoint

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
    writers=("o_proj.weight", "down_proj.weight"),
    norm="model.norm.weight",
    embedding="model.embed_tokens.weight",
    head="lm_head.weight",
)


@pytest.fixture
def model(checkpoint: Checkpoint) -> Iterator[OpenVinoModel]:
    directory = checkpoint(max_position_embeddings=512)
    (directory / "chat_template.jinja").write_text("{{ messages[0].content }}")
    file = directory / "model.safetensors"
    weights = load_file(file)
    mark(weights, NAMES)
    save_file(weights, file)
    options = {"n_threads": 1}
    with core.load_model(
        directory, backend="openvino", parallel_slots=3, options=options
    ) as loaded:
        yield cast("OpenVinoModel", loaded)
