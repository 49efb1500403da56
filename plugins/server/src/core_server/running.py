"""What ``infer-cli serve`` does: load the models, and listen until a signal."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click
import uvicorn

import core
from core.models.names import locate
from core.support import offered
from core_server.app import create_app
from core_server.served import Served
from core_server.settings import LOCAL_NAMES, Settings, is_local


def run(
    models: Sequence[str],
    *,
    host: str,
    port: int,
    api_key: str | None,
    max_queue: int,
    timeout: float,
    backend: str,
    context_len: int,
    parallel_slots: int,
    chat: bool,
) -> None:
    """Serve until SIGTERM or SIGINT; what was accepted by then is answered first."""
    local = is_local(host)
    if not local and not api_key:
        raise click.UsageError(
            f"{host} can be reached from other machines: give --api-key, or set INFER_API_KEY."
        )
    hosts = LOCAL_NAMES | {host} if local else frozenset()
    settings = Settings(
        api_key or None, max_queue=max_queue, timeout=timeout, chat=chat, hosts=frozenset(hosts)
    )
    names = [_name(model) for model in models]
    if twice := [name for name in names if names.count(name) > 1]:
        raise click.UsageError(f"Two of the models are called {twice[0]!r}: rename one.")
    served = [_served(model, backend, context_len, parallel_slots) for model in models]
    config = uvicorn.Config(
        create_app(served, settings), host=host, port=port, log_level="info", access_log=False
    )
    uvicorn.Server(config).run()


def _served(model: str, backend: str, context_len: int, parallel_slots: int) -> Served:
    path = locate(model)
    name = backend or core.default_backend(path).name
    loaded = core.load_model(
        path, backend=name, context_len=context_len, parallel_slots=parallel_slots
    )
    offers = offered(loaded, core.get_backend(name))
    return Served(_name(model), loaded, backend=name, capabilities=offers)


def _name(model: str) -> str:
    """What clients call it by."""
    return os.path.basename(os.path.normpath(model)).removesuffix(".gguf")
