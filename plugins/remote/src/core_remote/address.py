"""Where a model is: ``http://host:port/path#model``."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from core.errors import ModelNotFoundError, UnsupportedModelError
from core.models.files import is_server, model_formats, resolve_path
from core.secret import Secret
from core.support import unicode_error
from core.system.visible import visible_lines

_KEY_LENGTH = 4  # characters: a shorter text occurs in any message


@dataclass(frozen=True, slots=True)
class Address:
    """A server's base URL, without a slash at its end, the model's name there, and the key for it.

    The name "" stands for the server's first model, an empty key for none.
    """

    base: str
    model: str = ""
    key: Secret = field(default=Secret(""), repr=False, compare=False)

    @property
    def host(self) -> str:
        """The host and the port, for messages."""
        return urlsplit(self.base).netloc

    def quoted(self, text: str) -> str:
        """Return a text of the server's for an error message, on lines that a terminal may show.

        A server may repeat the key that it refuses: it is masked.
        """
        key = self.key.reveal()
        return visible_lines(text.replace(key, str(self.key)) if len(key) >= _KEY_LENGTH else text)

    def url(self, path: str) -> str:
        """The URL of a path, which begins with a slash."""
        return self.base + path


def address_of(path: str | os.PathLike[str]) -> Address:
    """The address that a path is. Raises `ModelNotFoundError`, `core.ModelError`."""
    location = resolve_path(path)
    if not is_server(location):
        formats = " or ".join(model_formats(location))
        raise UnsupportedModelError(
            f"Backend 'remote' asks servers, and {location!r} is {formats}. Give the address of "
            "one that serves the model: http://host:port#model."
        )
    if unicode_error(location) is not None:
        raise ModelNotFoundError(f"{location!r} is no address: it is no Unicode text.")
    try:
        parts = urlsplit(location)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise ModelNotFoundError(f"{location!r} is no address: {error}.") from None
    if not host or parts.query:
        raise ModelNotFoundError(f"{location!r} is no address like http://host:port#model.")
    shown = f"[{host}]" if ":" in host else host
    place = shown if port is None else f"{shown}:{port}"
    base = f"{parts.scheme}://{place}{parts.path.rstrip('/').removesuffix('/v1')}"
    return Address(base, unquote(parts.fragment))
