"""A model of ``infer-cli serve``, opened by the description that the server gives of it."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import TypeVar

import msgspec

from core.clock import never_stop
from core.errors import CoreError, ModelNotFoundError, ProtocolMismatchError
from core.models.fingerprint import known_as
from core.protocols import Capability
from core.types import Choice
from core.wires.contract import PREFIX, VERSION, Call, Description
from core.wires.plain import plain, value_of
from core_remote import failures
from core_remote.capabilities import of_description
from core_remote.connection import Connection
from core_remote.contract import checking
from core_remote.contract.asynchronous import AsyncMethods
from core_remote.contract.methods import METHODS
from core_remote.contract.model import ContractModel
from core_remote.model import Facts

T = TypeVar("T")


def describe(connection: Connection) -> Description | None:
    """What the server says of the model; None from a server without this wire.

    Raises `ModelNotFoundError` for a name that it does not know, `core.BackendProcessError`.
    """
    call = Call(connection.address.model)
    status, body = connection.get(PREFIX + "describe", never_stop, plain(call))
    if status == 404 and b"model_not_found" in body:
        raise failures.missing_model(connection.address, _names(connection))
    if status != 200:
        return None
    try:
        found = msgspec.json.decode(body)
        told = value_of(Description, found["value"] if isinstance(found, dict) else found)
    except (msgspec.DecodeError, CoreError, ValueError, KeyError, RecursionError) as error:
        raise failures.nonsense(connection.address, f"{error}, as a description") from None
    wrong = checking.of_info(told.info)
    if wrong is not None:
        raise failures.nonsense(connection.address, f"{wrong}, as a description")
    if told.wire > VERSION:
        raise ProtocolMismatchError(
            f"The server at {connection.address.base} speaks version {told.wire} of core's wire, "
            f"and this backend version {VERSION}. Upgrade core-remote."
        )
    return told


def open_model(
    backend: str, connection: Connection, told: Description, choices: tuple[Choice, ...]
) -> ContractModel:
    """The model, with the methods of the protocols that the server's model offers."""
    offered = of_description(frozenset(told.capabilities))
    known = tuple(
        Choice(f"server {each.name}" if each.name == "backend" else each.name, *rest(each))
        for each in told.choices
    )
    own = (*choices, Choice("wire", "core", "the server has the whole contract"))
    facts = Facts(told.info, offered, frozenset(told.refused), own + known)
    model = _class_for(frozenset(offered & METHODS.keys()))(backend, connection, facts)
    if told.fingerprint:
        known_as(model, told.fingerprint)
    return model


def rest(choice: Choice) -> tuple[str, str]:
    """What was chosen, and why."""
    return choice.value, choice.reason


@cache
def _class_for(protocols: Collection[Capability]) -> type[ContractModel]:
    bases = [METHODS[each] for each in sorted(protocols)]
    return type("RemoteModel", (*bases, AsyncMethods), {"__module__": __name__})


def _names(connection: Connection) -> list[str]:
    try:
        status, body = connection.get("/v1/models", never_stop)
        return (
            [str(each["id"]) for each in msgspec.json.decode(body)["data"]] if status == 200 else []
        )
    except (CoreError, ModelNotFoundError, KeyError, TypeError, ValueError):
        return []
