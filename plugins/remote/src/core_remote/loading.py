"""Opening of a model: detect the API of its server, and read the model's facts."""

from __future__ import annotations

import os
from dataclasses import replace

from core import validate
from core.errors import ModelNotFoundError, UnsupportedOptionError
from core.kit.support import chosen_backend
from core.options import LoadConfig
from core.protocols import Capability
from core.secret import Secret, header_key
from core.types import Choice
from core_remote.address import Address
from core_remote.connection import Connection, ConnectionSettings
from core_remote.contract import loading as contract
from core_remote.failures import ServerError
from core_remote.llama_cpp import loading as llama_cpp
from core_remote.model import RemoteModel
from core_remote.openai import loading as openai

KEY = "CORE_REMOTE_API_KEY"
_SILENCE_SECONDS = 600.0


def open_model(backend: str, address: Address, config: LoadConfig) -> RemoteModel:
    """Return the model of a server; on failure, no thread is left.

    Raises as `core.Backend.load_model` says.
    """
    connection = Connection(_settings(address, config))
    try:
        try:
            model = _opened(backend, connection, config)
        except ServerError as error:
            if error.status:
                raise
            raise ModelNotFoundError(f"Model not found at {address.base}: {error}") from error
        _check_slots(backend, model, config)
    except BaseException:
        connection.close()
        raise
    return model


def _opened(backend: str, connection: Connection, config: LoadConfig) -> RemoteModel:
    address = connection.address
    choices = (
        chosen_backend(backend, config),
        Choice("device", f"the server at {address.base}", "the model runs there"),
    )
    description = contract.describe(connection)
    if description is not None:
        return contract.open_model(backend, connection, description, choices)
    requested = config.options.get("connections", config.parallel_slots)
    most = validate.integer("connections", requested, 0)
    own = llama_cpp.describe(connection)
    if own is not None:
        connection.limit(most or max(1, own.total_slots))
        model = llama_cpp.open_model(backend, connection, own, choices)
        if model is not None:
            return model
    connection.limit(most or openai.usual_connections(connection))
    return openai.open_model(backend, connection, choices, config)


def _settings(address: Address, config: LoadConfig) -> ConnectionSettings:
    silence = config.options.get("silence_timeout", _SILENCE_SECONDS)
    return ConnectionSettings(
        replace(address, key=_key(config)),
        validate.real("silence_timeout", silence, 0.0, above=True),
        config.parallel_slots,
    )


def _key(config: LoadConfig) -> Secret:
    """Return the key, from the option or the environment. Raises `core.InvalidOptionError`."""
    given = config.options.get("api_key")  # which was checked where it was given
    return given if isinstance(given, Secret) else header_key(KEY, Secret(os.environ.get(KEY, "")))


def _check_slots(backend: str, model: RemoteModel, config: LoadConfig) -> None:
    if config.parallel_slots > 1 and Capability.PARALLEL not in model.declared():
        model.close()
        raise UnsupportedOptionError(
            "parallel_slots", backend, "The server runs one request at a time."
        )
