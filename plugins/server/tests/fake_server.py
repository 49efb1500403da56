"""A server of a fake model as a process of its own: ``python fake_server.py PORT``."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import uvicorn

from core.testing import FakeModel
from core_server import Served, Settings, create_app
from core_server.listening import configured


def probabilities(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """All alike, as slowly as a small model."""
    time.sleep(0.0002)
    return {label: 0.5 / len(labels) for label in labels}


def main() -> None:
    """Serve until a signal comes."""
    answers: Any = lambda prompt: "A long answer. " * 20  # noqa: E731
    served = Served("fake", FakeModel(answers, labels=probabilities))
    app = create_app([served], Settings(max_queue=128, body_timeout=2.0))
    uvicorn.Server(configured(app, port=int(sys.argv[1]), log_level="warning")).run()


if __name__ == "__main__":
    main()
