"""The conformance suite's reference behind the server, in a process of its own: a port, a key."""

from __future__ import annotations

import sys
import tempfile

import uvicorn

from core.options import LoadConfig
from core.registry import REGISTRY
from core_conformance.reference import Reference, write_model
from core_server import Served, Settings, create_app


def main() -> None:
    """Serve until a signal."""
    # Plain Python keeps the interpreter to itself for longer than one of its answers takes.
    sys.setswitchinterval(0.0005)
    port, key = int(sys.argv[1]), sys.argv[2]
    backend = Reference()
    REGISTRY.register(backend)
    with tempfile.TemporaryDirectory() as folder:
        model = backend.load_model(write_model(folder), LoadConfig())
        served = Served("reference", model, backend=backend.name, capabilities=backend.capabilities)
        app = create_app([served], Settings(api_key=key))
        uvicorn.run(app, port=port, log_level="error")


if __name__ == "__main__":
    main()
