"""Opening of a model of ``infer-cli serve``, by its server's description of it."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import TypeVar

import msgspec

from core.errors import CoreError, ModelNotFoundError, ProtocolMismatchError
from core.kit.base import never_stop
from core.kit.support import REFUSABLE
from core.models.fingerprint import known_as
from core.protocols import Capability
from core.types import Choice
from core_remote import failures
from core_remote.capabilities import of_description
from core_remote.connection import Connection
from core_remote.contract import checking
from core_remote.contract.asynchronous import AsyncMethods
from core_remote.contract.methods import METHODS
from core_remote.contract.model import ContractModel
from core_remote.model import ModelFacts
from core_wires.contract import PREFIX, VERSION, Call, Description
from core_wires.plain import plain, value_of

T = TypeVar("T")


def describe(connection: Connection) -> Description | None:
    """Return the server's description of the model; None from a server without this API.

    Raises `ModelNotFoundError` for an unknown name, `core.BackendProcessError`.
    """
    call = Call(connection.address.model)
    status, body = connection.get(PREFIX + "describe", never_stop, plain(call))
    if status == 404 and b"model_not_found" in body:
        raise failures.missing_model(connection.address, _names(connection))
    if status != 200:
        return None
    try:
        answer = msgspec.json.decode(body)
        description = value_of(Description, answer["value"] if isinstance(answer, dict) else answer)
    except (msgspec.DecodeError, CoreError, ValueError, KeyError, RecursionError) as error:
        raise failures.nonsense(connection.address, f"{error}, as a description") from None
    wrong = checking.of_info(description.info)
    if wrong is not None:
        raise failures.nonsense(connection.address, f"{wrong}, as a description")
    if description.wire > VERSION:
        raise ProtocolMismatchError(
            f"The server at {connection.address.base} has version {description.wire} of core's "
            f"API, and this backend supports up to {VERSION}. Upgrade infercore-remote."
        )
    return description


def open_model(
    backend: str, connection: Connection, description: Description, choices: tuple[Choice, ...]
) -> ContractModel:
    """Return the model, with the methods of the protocols that the server's model offers."""
    offered = of_description(frozenset(description.capabilities))
    known = tuple(
        Choice(f"server {choice.name}" if choice.name == "backend" else choice.name, *rest(choice))
        for choice in description.choices
    )
    own = (*choices, Choice("wire", "core", "the server supports core's API"))
    facts = ModelFacts(
        description.info, offered, REFUSABLE.difference(description.refused), own + known
    )
    model = _class_for(frozenset(offered & METHODS.keys()))(backend, connection, facts)
    if description.fingerprint:
        known_as(model, description.fingerprint)
    return model


def rest(choice: Choice) -> tuple[str, str]:
    """Return the chosen value, and the reason."""
    return choice.value, choice.reason


@cache
def _class_for(protocols: Collection[Capability]) -> type[ContractModel]:
    bases = [METHODS[capability] for capability in sorted(protocols)]
    return type("RemoteModel", (*bases, AsyncMethods), {"__module__": __name__})


def _names(connection: Connection) -> list[str]:
    try:
        status, body = connection.get("/v1/models", never_stop)
        listed = msgspec.json.decode(body)["data"] if status == 200 else ()
        return [str(model["id"]) for model in listed]
    except (CoreError, ModelNotFoundError, KeyError, TypeError, ValueError, RecursionError):
        return []
