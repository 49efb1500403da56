"""The command ``infer-cli serve``: find the models, and listen until a signal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import click
import uvicorn

import core
from core.errors import UnsupportedModelError
from core.extensions import ModelProbe
from core.kit.support import offered, refuse_options
from core.models.locating import located
from core.options import GenerateConfig
from core.protocols import Capability
from core.rendering import SWITCHES
from core_server.access_log import configuration
from core_server.app import create_app
from core_server.listening import configured, connections
from core_server.models import Loadable
from core_server.questions import public_name
from core_server.served import Served
from core_server.settings import LOCAL_NAMES, Settings, check_aliases, is_local
from core_tasks.deciding import question_of

_MOST_KEY = 4096  # bytes


def run(
    models: Sequence[str],
    *,
    host: str,
    port: int,
    api_key: str | None,
    api_key_file: str | None,
    max_queue: int,
    timeout: float,
    backend: str,
    context_len: int,
    parallel_slots: int,
    chat: bool,
    memory_limit: int | None,
    chat_template_kwargs: str | None,
    thinking: bool | None,
    tasks: Mapping[str, str],
    heads: Mapping[str, str],
    log_level: str,
    access_log: bool,
    aliases: Sequence[str],
) -> None:
    """Serve until SIGTERM or SIGINT; requests accepted by then are answered first."""
    local = is_local(host)
    api_key = api_key if api_key_file is None else _key_of(api_key_file, api_key)
    if not local and not api_key:
        raise click.UsageError(
            f"--host {host} exposes the server to the network: set --api-key-file or INFER_API_KEY."
        )
    hosts = LOCAL_NAMES | {host} if local else frozenset()
    names = [public_name(model) for model in models]
    settings = Settings(
        api_key or None,
        max_queue=max_queue,
        timeout=timeout,
        chat=chat,
        hosts=frozenset(hosts),
        memory_limit=memory_limit,
        aliases=_aliases(aliases, names),
    )
    if twice := [name for name in names if names.count(name) > 1]:
        raise click.UsageError(f"Two of the models are named {twice[0]!r}. Rename one of them.")
    if both := sorted(tasks.keys() & heads.keys()):
        raise click.UsageError(f"A task and a head are both named {both[0]!r}. Rename one of them.")
    questions = {  # errors of files are reported before a model is loaded
        "tasks": {name: question_of(task=file) for name, file in tasks.items()},
        "heads": {name: question_of(head=file) for name, file in heads.items()},
    }
    defaults = _defaults(chat_template_kwargs, thinking)
    load = partial(
        _served, context_len=context_len, parallel_slots=parallel_slots, defaults=defaults
    )
    # A single model is loaded at the start, so that its errors are reported at once.
    alone = len(models) == 1
    served = [load(m, backend) if alone else _loadable(m, backend, load) for m in models]
    app = create_app(served, settings, **questions)
    most = connections(max_queue)
    log = configuration(log_level.upper(), access=access_log)
    uvicorn.Server(configured(app, most=most, host=host, port=port, log_config=log)).run()


def _aliases(pairs: Sequence[str], models: Sequence[str]) -> dict[str, str]:
    """Return the models of ``NAME`` and ``NAME=MODEL`` by alias. Raises `click.UsageError`."""
    parts = [pair.partition("=") for pair in pairs]
    aliases = {alias: model or models[0] for alias, _, model in parts}
    try:
        check_aliases(aliases, models)
    except ValueError as error:
        raise click.UsageError(f"--alias: {error}") from None
    return aliases


def _key_of(file: str, given: str | None) -> str:
    """Return the key that a file holds. Raises `click.UsageError`, which does not show it."""
    if given:
        raise click.UsageError(
            "--api-key-file cannot be combined with --api-key or INFER_API_KEY. Set one of them."
        )
    try:
        with open(file, "rb") as stream:
            key = stream.read(_MOST_KEY + 1).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise click.UsageError(f"Cannot read --api-key-file {file}: {reason}.") from None
    if not key or len(key) > _MOST_KEY or not key.isprintable():
        raise click.UsageError(f"--api-key-file {file} is not a key file: expected one text line.")
    return key


def _loadable(model: str, backend: str, load: Callable[[str, str], Served]) -> Loadable:
    """Return a model that is not loaded yet.

    Raises `core.CoreError` for errors that its files already show.
    """
    path = located(model).path
    name = backend or core.default_backend(path).name
    probe = core.get_backend(name)
    if isinstance(probe, ModelProbe) and (refused := probe.refusal(path)):
        raise UnsupportedModelError(refused)
    try:
        [described, *_] = core.discover(path, depth=0)
    except (core.CoreError, ValueError):  # no files of this machine
        return Loadable(public_name(model), lambda: load(model, name), name)
    kind, size = described.model_type, described.size_bytes
    return Loadable(public_name(model), lambda: load(model, name), name, kind, size)


def _defaults(variables: str | None, thinking: bool | None) -> GenerateConfig:
    """Return the default options of requests. Raises `click.BadParameter`."""
    hint = "'--chat-template-kwargs'"
    try:
        given = {} if variables is None else dict(json.loads(variables))
    except (ValueError, TypeError, RecursionError):
        example = '{"enable_thinking": false}'
        message = f"{variables!r:.80} is not a JSON object such as '{example}'."
        raise click.BadParameter(message, param_hint=hint) from None
    if thinking is not None:
        if SWITCHES[0] in given:
            message = f"--thinking and {SWITCHES[0]} set the same variable. Remove one."
            raise click.BadParameter(message, param_hint=hint)
        given[SWITCHES[0]] = thinking
    return GenerateConfig(chat_template_kwargs=given)


def _served(
    model: str, backend: str, context_len: int, parallel_slots: int, defaults: GenerateConfig
) -> Served:
    name = backend or core.default_backend(model).name
    loaded = core.load_model(
        model, backend=name, context_len=context_len, parallel_slots=parallel_slots
    )
    offers = offered(loaded, core.get_backend(name))
    refuse_options(defaults, Capability.CHAT, name, offers, honours=())
    return Served(public_name(model), loaded, backend=name, capabilities=offers, defaults=defaults)
