"""What programs hear through the logger of this package."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import core
from core_mlx_native.backend import Cpu


def test_micro_batches_calls_and_closes_are_told(
    checkpoint: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="core_mlx_native")
    with Cpu().load_model(checkpoint("llama"), core.LoadConfig()) as model:
        model.classify(["ab", "no", "an ab"])
    assert {record.name for record in caplog.records} == {"core_mlx_native"}
    told = [record.getMessage() for record in caplog.records]
    batches = [line.split() for line in told if line.startswith("a batch of ")]
    assert sum(int(words[3]) for words in batches) == 3  # rows
    assert sum(int(words[6]) for words in batches) == model.metrics.prompt_tokens
    assert [line.split(" took ")[0] for line in told[len(batches) :]] == [
        "mlx_cpu: a call",
        "mlx_cpu: a model was closed",
    ]


def test_nothing_is_counted_where_nobody_listens(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from core_mlx_native.classify.scheduler import Scheduler

    def count(*arguments: object) -> int:
        raise AssertionError("counted")

    monkeypatch.setattr(Scheduler, "_computed", count)
    with Cpu().load_model(checkpoint("llama"), core.LoadConfig()) as model:
        assert [row.error for row in model.classify(["ab", "no"])] == [None, None]
