"""What programs hear through the logger of this package."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest

from core_mlx_lm_bridge.model import BridgeModel


def test_workers_calls_and_closes_are_told(
    fake: Callable[..., BridgeModel], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="core_mlx_lm_bridge")
    model: Any = fake()
    model.generate("Hello", max_tokens=2).text()
    model.close()
    told = [record.getMessage() for record in caplog.records]
    for line, wanted in zip(
        told,
        [r"worker \d+ has loaded in ", "mlx_lm: a call took ", "mlx_lm: a model was closed"],
        strict=True,
    ):
        assert re.match(wanted, line)
