"""A GGUF file read without a conversion: tensors by their new names, and errors of a load."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

import core
from core_runtime.checkpoint.config import parse_config
from core_runtime.gguf.config import hf_config
from core_runtime.gguf.metadata import LOAD
from core_runtime.gguf.names import CONVENTIONS, restored
from core_runtime.gguf.source import GgufSource
from core_runtime.gguf.templates import chat_templates
from core_runtime.gguf.tensors import check_architecture, plan
from runtime.tests.gguf.tiny_gguf import tiny_gguf


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_tensors_are_those_of_transformers(tmp_path: Path, architecture: str) -> None:
    tiny = tiny_gguf(architecture)
    source = GgufSource(tiny.write(tmp_path / "m.gguf"), LOAD)
    check_architecture(source)
    config = hf_config(source, "float32")
    names = plan(source, parse_config(config, "m.gguf"))
    assert names.keys() == tiny.hf.keys()
    for name, stored in names.items():
        array = restored(name, source.array(stored), CONVENTIONS[architecture], config)
        np.testing.assert_allclose(array, tiny.hf[name], atol=1e-6)


def test_a_tensor_as_it_is_stored(tmp_path: Path) -> None:
    tiny, kind = tiny_gguf(), gguf.GGMLQuantizationType.Q8_0
    tiny.quantized["blk.0.ffn_up.weight"] = kind
    source = GgufSource(tiny.write(tmp_path / "m.gguf"), LOAD)
    stored, blocks = source.blocks("blk.0.ffn_up.weight")
    assert stored == kind
    expected = gguf.quants.quantize(tiny.tensors["blk.0.ffn_up.weight"], kind)
    np.testing.assert_array_equal(blocks, expected)


def test_errors_name_what_the_file_is_read_for(tmp_path: Path) -> None:
    tiny = tiny_gguf()
    tiny.metadata["llama.expert_count"] = 2
    path = tiny.write(tmp_path / "m.gguf")
    with pytest.raises(core.UnsupportedModelError, match=r"Cannot load .*m\.gguf: mixtures of"):
        hf_config(GgufSource(path, LOAD), "float32")
    with pytest.raises(core.ConversionError, match=r"Cannot convert .*m\.gguf: mixtures of"):
        hf_config(GgufSource(path), "float32")


def test_templates_by_name(tmp_path: Path) -> None:
    tiny = tiny_gguf()
    tiny.metadata["tokenizer.chat_template.rag"] = "rag"
    metadata = GgufSource(tiny.write(tmp_path / "m.gguf"), LOAD).metadata
    assert chat_templates(metadata) == ("{{ messages[0].content }}", {"rag": "rag"})
