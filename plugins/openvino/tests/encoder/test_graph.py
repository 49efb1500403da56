"""What OpenVINO makes of the graphs: attention and RoPE are one node each, in every dtype."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core_openvino.nodes import node_counts
from plugins.openvino.tests.encoder.oracle.weights import ROWS
from plugins.openvino.tests.encoder.tiny import record, rows_of, session_of, write_encoder

LEFT_OVER = {"Softmax", "Power", "Erf"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("case", ["bert", "xlm-roberta", "mpnet", "modernbert", "deberta-v2"])
def test_attention_is_one_node(case: str, dtype: str, tmp_path: Path) -> None:
    session = session_of(write_encoder(tmp_path, case), dtype)
    session.compute(rows_of(ROWS))
    assert session.compiled is not None
    counts = node_counts(session.compiled())
    layers = session.config.num_layers
    attention = counts.get("Subgraph", 0) + counts.get("ScaledDotProductAttention", 0)
    assert attention >= layers, counts
    assert not LEFT_OVER & counts.keys(), counts
    products = 4 if session.config.family.modern else 6
    assert counts["FullyConnected"] >= products * layers, counts
    assert counts.get("RoPE", 0) == (2 * layers if session.config.family.modern else 0)


# Measured on a Xeon with AMX: at most 0.9995 and 0.996.
LEAST = {"bfloat16": 0.999, "int8": 0.99}


@pytest.mark.parametrize("dtype", LEAST)
@pytest.mark.parametrize(
    "case", ["bert", "roberta", "mpnet", "distilbert", "modernbert", "deberta-v2"]
)
def test_a_rounded_dtype_rounds_a_little(case: str, dtype: str, tmp_path: Path) -> None:
    exact = np.array(record(case)["means"])
    rounded = session_of(write_encoder(tmp_path, case), dtype).compute(rows_of(ROWS))
    lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(rounded, axis=1)
    cosines = (exact * rounded).sum(1) / lengths
    assert LEAST[dtype] < cosines.min() < 1 - 1e-7
