"""Address of a model: ``http://host:port/path#model``."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from core.errors import ModelNotFoundError, UnsupportedModelError
from core.kit.support import unicode_error
from core.models.files import is_server, model_formats, resolve_path
from core.secret import Secret
from core.system.terminal import visible_lines

_BEGINNING = 8  # characters: a key of a known kind begins with as many that are not secret
_KEY_LENGTH = 4  # characters: a shorter text occurs in any message


@dataclass(frozen=True, slots=True)
class Address:
    """A server's base URL without a trailing slash, the model's name there, and the API key.

    The name "" means the server's first model, an empty key means none.
    """

    base: str
    model: str = ""
    key: Secret = field(default=Secret(""), repr=False, compare=False)

    @property
    def host(self) -> str:
        """The host and the port, for messages."""
        return urlsplit(self.base).netloc

    def quoted(self, text: str) -> str:
        """Return a server's text for an error message, safe to show in a terminal.

        The key is masked: a server may repeat the one that it refuses.
        """
        key = self.key.reveal()
        if len(key) >= _KEY_LENGTH:
            for form in sorted({key, repr(key)[1:-1], json.dumps(key)[1:-1]}, key=len):
                text = text.replace(form, str(self.key))
                text = self._without_beginning(text, form)
        return visible_lines(text)

    def _without_beginning(self, text: str, key: str) -> str:
        """Mask the beginning of a key, which a text that was cut may end in."""
        for end in range(len(key) - 1, _BEGINNING - 1, -1):
            if key[:end] in text:
                return text.replace(key[:end], str(self.key))
        return text

    def url(self, path: str) -> str:
        """Return the URL of a path, which begins with a slash."""
        return self.base + path


def address_of(path: str | os.PathLike[str]) -> Address:
    """Return a path as an address. Raises `ModelNotFoundError`, `core.ModelError`."""
    location = resolve_path(path)
    if not is_server(location):
        formats = " or ".join(model_formats(location))
        raise UnsupportedModelError(
            f"Backend 'remote' only opens models on a server; {location!r} is {formats}. Pass the "
            "server's address: http://host:port#model."
        )
    if unicode_error(location) is not None:
        raise ModelNotFoundError(f"{location!r} is not a server address: not Unicode text.")
    try:
        parts = urlsplit(location)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise ModelNotFoundError(f"{location!r} is not a server address: {error}.") from None
    if not host or parts.query:
        raise ModelNotFoundError(
            f"{location!r} is not a server address: expected http://host:port#model."
        )
    shown = f"[{host}]" if ":" in host else host
    place = shown if port is None else f"{shown}:{port}"
    base = f"{parts.scheme}://{place}{parts.path.rstrip('/').removesuffix('/v1')}"
    return Address(base, unquote(parts.fragment))
