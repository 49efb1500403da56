"""Checks of an address without contacting its server."""

from __future__ import annotations

import os

from core.errors import CoreError
from core_remote.address import address_of


def refusal(path: str | os.PathLike[str]) -> str | None:
    """Return the reason why a path is not a server address, or None. No server is contacted."""
    try:
        address_of(path)
    except CoreError as error:
        return str(error)
    return None
