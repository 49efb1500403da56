"""The backend ``remote``. Importing this module and checking availability contacts no server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from core.errors import UnsupportedOptionError
from core.kit.base import BackendBase
from core.options import LoadConfig
from core_remote import availability
from core_remote.capabilities import BACKEND_CAPABILITIES

if TYPE_CHECKING:
    from core_remote.model import RemoteModel

_OWN_OPTIONS = {
    "api_key": "the server's API key; or set CORE_REMOTE_API_KEY",
    "connections": "concurrent requests, if the server is not infer-cli serve; its slots, 4, or 1",
    "context_length": "context length in tokens, if the server does not report it",
    "silence_timeout": "seconds without a complete line after which a request fails",
}


class Remote(BackendBase):
    """Models on a server: ``infer-cli serve``, llama.cpp's, or any with OpenAI's API."""

    name = "remote"
    capabilities = BACKEND_CAPABILITIES  # of any server; a model's ``declared()`` has its own
    formats = frozenset({"http"})
    own_options = _OWN_OPTIONS

    def unavailable_reason(self) -> str | None:
        """Return the reason why the backend cannot be used, and what to install, or None."""
        return availability.unavailable_reason()

    def refusal(self, path: str | os.PathLike[str]) -> str | None:
        """Return the reason why a path is not a server address. No server is contacted."""
        from core_remote.probing import refusal

        return refusal(path)

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> RemoteModel:
        """Open the model on its server. Raises as `core.Backend.load_model` says.

        `core.BackendProcessError` is raised if the server has no supported API.
        """
        self.check_available()
        from core_remote.address import address_of
        from core_remote.loading import open_model

        self.check_options(config)
        for option, default in (("gpu_layers", -1), ("context_len", 0)):
            if getattr(config, option) != default:
                advice = f"The model is loaded on the server: set {option} there."
                raise UnsupportedOptionError(option, self.name, advice)
        return open_model(self.name, address_of(path), config)
