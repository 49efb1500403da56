"""Two fake models that share little room, as a process: ``python hostile_server.py PORT BYTES``.

BYTES bound its address space: a request that takes more ends in a MemoryError, or the process.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping, Sequence

import uvicorn

from core.testing import FakeModel
from core_server import Loadable, Served, Settings, create_app
from core_server.listening import configured, connections


def probabilities(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """All alike, as slowly as a small model."""
    time.sleep(0.0002)
    return {label: 0.5 / len(labels) for label in labels}


def loaded(name: str) -> Served:
    """A model that answers at length."""
    return Served(name, FakeModel("A long answer. " * 20, labels=probabilities))


def main() -> None:
    """Serve until a signal comes."""
    port, most = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    offered = [
        Loadable("a", lambda: loaded("a"), size_bytes=10),
        Loadable("b", lambda: loaded("b"), size_bytes=10),
    ]
    settings = Settings(
        max_queue=64, memory_limit=10, body_timeout=5.0, timeout=30.0, max_memory=128 << 20
    )
    config = configured(
        create_app(offered, settings), most=connections(64), port=port, log_level="warning"
    )
    uvicorn.Server(config).run()


if __name__ == "__main__":
    main()
