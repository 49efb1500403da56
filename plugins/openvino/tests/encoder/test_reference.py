"""Outputs against transformers in double precision, on tiny random encoders of every family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plugins.openvino.tests.encoder.oracle.weights import PAIRS, ROWS
from plugins.openvino.tests.encoder.tiny import (
    CASES,
    Floats,
    pairs_of,
    record,
    rows_of,
    session_of,
    write_encoder,
)

TOLERANCE = 1e-5
EMBEDDING = [case for case in CASES if "means" in record(case)]
PAIRED = [case for case in CASES if "logits" in record(case)]


def distance(left: Floats, right: Floats) -> float:
    assert left.shape == right.shape
    return float(np.abs(left - right).max())


def test_every_family_has_a_case() -> None:
    from core_openvino.encoder.families import FAMILIES

    assert {record(case)["config"]["model_type"] for case in EMBEDDING} == FAMILIES.keys()


@pytest.mark.parametrize("case", EMBEDDING)
def test_embeddings_equal_transformers(case: str, tmp_path: Path) -> None:
    """The mean and the first state; rows alone, side by side, and in reverse order."""
    session = session_of(write_encoder(tmp_path, case), pooling=("mean", "cls"))
    expected = np.hstack([np.array(record(case)[name]) for name in ("means", "firsts")])
    together = session.compute(rows_of(ROWS))
    alone = np.vstack([session.compute(rows_of([row])) for row in ROWS])
    backwards = session.compute(rows_of(ROWS[::-1]))[::-1]
    assert np.abs(expected).max() > 0.5
    for outputs in (alone, together, backwards):
        assert distance(outputs, expected) < TOLERANCE


@pytest.mark.parametrize("case", PAIRED)
def test_logits_of_pairs_equal_transformers(case: str, tmp_path: Path) -> None:
    session = session_of(write_encoder(tmp_path, case))
    rows = pairs_of(PAIRS, session.config.segments)
    expected = np.array(record(case)["logits"])
    assert distance(session.compute(rows), expected) < TOLERANCE
    assert distance(session.compute(rows[::-1])[::-1], expected) < TOLERANCE
