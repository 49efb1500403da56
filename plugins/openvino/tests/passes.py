"""Logits of prompts from a session alone: no tokenizer, no engine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from core_openvino.checkpoint import Checkpoint
from core_openvino.loaded import open_session
from core_openvino.session import PagedSession
from core_openvino.settings import SessionSettings
from core_runtime.checkpoint.arrays import SafetensorArrays
from core_runtime.checkpoint.config import load_config
from core_runtime.processor import bfloat16_instructions, cpu_flags, int8_instructions

if TYPE_CHECKING:
    from collections.abc import Iterator

Logits = npt.NDArray[np.float32]
Prompt = Sequence[int]


def skip_without_instructions(dtype: str) -> None:
    """Skip a test of a dtype for which this processor has no instructions."""
    flags = cpu_flags()
    if dtype == "bfloat16" and not bfloat16_instructions(flags):
        pytest.skip("no instructions for bfloat16")
    if dtype == "int8" and not int8_instructions(flags):
        pytest.skip("no instructions for int8")


@contextmanager
def session_of(
    directory: Path,
    dtype: str = "float32",
    cells: int = 4096,
    sequences: int = 16,
    threads: int = 1,
) -> Iterator[PagedSession]:
    """Open a directory, which may be without a tokenizer; skip where the processor cannot."""
    skip_without_instructions(dtype)
    config = load_config(directory)
    tensors = SafetensorArrays(directory, config)
    checkpoint = Checkpoint(
        directory, config, cast("Any", None), frozenset(), tensors, quantisation=(0, 0)
    )
    settings = SessionSettings(
        cells=cells, n_seq_max=sequences, n_batch=cells, threads=threads, dtype=dtype
    )
    session = open_session(checkpoint, settings)
    try:
        yield session
    finally:
        session.close()


def last_logits(session: PagedSession, prompts: Sequence[Prompt]) -> Logits:
    """Return the logits after each prompt, all of one batch: [prompts, vocabulary]."""
    batch = session.new_batch()
    places = [batch.add(prompt, 0, row, 1) for row, prompt in enumerate(prompts)]
    session.decode(batch)
    rows = np.stack([session.logits(place) for place in places])
    for row in range(len(prompts)):
        session.drop(row)
    return rows


def chunked_logits(session: PagedSession, prompt: Prompt, size: int) -> Logits:
    """Return the logits after each token of one prompt, computed in chunks of ``size`` tokens."""
    parts = []
    for start in range(0, len(prompt), size):
        chunk, batch = prompt[start : start + size], session.new_batch()
        first = batch.add(chunk, start, 0, len(chunk))
        session.decode(batch)
        parts += [session.logits(first + place).copy() for place in range(len(chunk))]
    session.drop(0)
    return np.stack(parts)


def distance(left: Logits, right: Logits) -> float:
    """Return the largest difference of two arrays of logits."""
    assert left.shape == right.shape
    return float(np.abs(left - right).max())


def assert_equal_rows(left: Logits, right: Logits) -> None:
    """Assert that logits are equal in float32, but for the order of sums in other kernels."""
    assert distance(left, right) < 1e-5
