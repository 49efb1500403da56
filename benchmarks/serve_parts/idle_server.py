"""Our server with a fake model: ``python -m benchmarks.serve_parts.idle_server``."""

from __future__ import annotations

import argparse

import uvicorn

from core.testing import FakeModel
from core_server import Served, create_app


def main() -> None:
    """Listen until a signal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    model = FakeModel("x", labels=lambda prompt, labels: labels[0])
    app = create_app([Served("nothing", model)])
    uvicorn.run(app, host=given.host, port=given.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
