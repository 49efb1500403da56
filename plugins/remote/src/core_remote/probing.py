"""What can be said of an address before its server is asked."""

from __future__ import annotations

import os

from core.errors import CoreError
from core_remote.address import address_of


def refusal(path: str | os.PathLike[str]) -> str | None:
    """The reason why there can be no server; None for any address. No server is asked."""
    try:
        address_of(path)
    except CoreError as error:
        return str(error)
    return None
