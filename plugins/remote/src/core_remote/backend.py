"""The backend ``remote``. Importing this module and asking about availability asks no server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from core.errors import BackendUnavailableError, UnsupportedOptionError
from core.options import LoadConfig
from core.protocols import PROTOCOL_VERSION, Capability
from core.support import refuse_load_options
from core_remote import availability
from core_remote.capabilities import BACKEND_CAPABILITIES

if TYPE_CHECKING:
    from core_remote.model import RemoteModel

_OWN_OPTIONS = {
    "api_key": "the server's key; or set CORE_REMOTE_API_KEY",
    "connections": "requests at once, where the server is not ours; its slots, 4, or 1",
    "context_length": "tokens that the model's context holds, where its server does not tell",
    "silence_timeout": "seconds without a whole line after which a server is left",
}


class Remote:
    """Models behind a server: ``infer-cli serve``'s, llama.cpp's, or any of OpenAI's wire."""

    name = "remote"
    protocol = PROTOCOL_VERSION
    formats = frozenset({"http"})
    own_options = _OWN_OPTIONS

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The most that a server's model offers; what one does offer, its ``declared()`` says."""
        return BACKEND_CAPABILITIES

    def available(self) -> bool:
        """True where the HTTP client is installed."""
        return self.unavailable_reason() is None

    def unavailable_reason(self) -> str | None:
        """The reason why no server can be asked, and what to install; None when one can."""
        return availability.unavailable_reason()

    def refusal(self, path: str | os.PathLike[str]) -> str | None:
        """The reason why there can be no server at a path. No server is asked."""
        from core_remote.probing import refusal

        return refusal(path)

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> RemoteModel:
        """Ask the server for the model. Raises as `core.Backend.load_model` says.

        `core.BackendProcessError` is raised where the server speaks no wire that is known here.
        """
        reason = self.unavailable_reason()
        if reason is not None:
            raise BackendUnavailableError(self.name, reason)
        from core_remote.address import address_of
        from core_remote.opening import open_model

        refuse_load_options(config, self.name, self.capabilities, _OWN_OPTIONS)
        for option, default in (("gpu_layers", -1), ("context_len", 0)):
            if getattr(config, option) != default:
                advice = f"The server has loaded the model: give {option} there."
                raise UnsupportedOptionError(option, self.name, advice)
        return open_model(self.name, address_of(path), config)
