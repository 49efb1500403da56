"""The LM head of a directory whose config.json ties it to the embedding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from core_runtime.checkpoint.arrays import SafetensorArrays
from core_runtime.checkpoint.config import load_config
from core_runtime.checkpoint.tensors import expected_tensors
from runtime.tests.tiny import write_config

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@pytest.mark.parametrize("own", [False, True])
def test_a_stored_head_is_a_tensor_unless_it_is_the_embedding(tmp_path: Path, own: bool) -> None:
    write_config(tmp_path, "llama", tie_word_embeddings=True)
    config = load_config(tmp_path, tensors=False)
    tensors = {
        name: np.full(shape, number, np.float32)
        for number, (name, shape) in enumerate(expected_tensors(config).items())
    }
    save_file({**tensors, HEAD: tensors[EMBEDDING] - own}, tmp_path / "model.safetensors")
    arrays = SafetensorArrays(tmp_path, config)
    assert arrays.shapes.keys() - set(tensors) == ({HEAD} if own else set())
    assert np.array_equal(arrays.take(EMBEDDING), tensors[EMBEDDING])
    if own:
        assert np.array_equal(arrays.take(HEAD), tensors[EMBEDDING] - 1)
