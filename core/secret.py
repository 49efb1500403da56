"""Secret load options that are never displayed, such as the key of a server.

A key is a `Secret` from the option to the request that carries it: messages, logs, reprs and files
contain a mask. This module decides by an option's name whether it is secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from core.errors import InvalidOptionError

Options = TypeVar("Options", bound="Mapping[str, object] | None")

_ENDINGS = (
    *("api_key", "apikey", "api-key", "private_key", "secret", "credentials", "authorization"),
    *("access_token", "auth_token", "api_token", "bearer_token", "hf_token", "hub_token"),
    *("password", "passwd", "passphrase"),
)
_NAMES = ("token",)  # alone: a tokenizer has a bos_token
_ENVIRONMENT = "env"  # of a child process: a mapping, each value of which may be a secret
_KEY = "api_key"
_VISIBLE = re.compile("[!-~]*")
_EXPECTED = (
    "a string of visible ASCII characters, without spaces (on the command line, "
    """a number needs quotes: -O 'api_key="123"')"""
)


class Secret:
    """A value that is masked in ``str`` and ``repr``. `reveal` returns it.

    Equal values are equal secrets. A copy is the same object, so that ``dataclasses.asdict`` keeps
    the mask. It cannot be pickled, because pickles are stored and shared.
    """

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value.reveal() if isinstance(value, Secret) else value

    def reveal(self) -> Any:
        """Return the value, for the code that sends it to its destination."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(...)"

    def __str__(self) -> str:
        return "..."

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and bool(self._value == other._value)

    def __hash__(self) -> int:
        return hash(repr(self._value))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(
            "A secret cannot be pickled, because a file or a network would then hold it. Set it in "
            "the environment of the other process (CORE_REMOTE_API_KEY for the key of a server)."
        )


def is_secret(name: str) -> bool:
    """Return whether a load option with this name is or contains a secret."""
    return name == _ENVIRONMENT or _is_secret(name)


def holds_secret(name: str, value: object) -> bool:
    """Return whether a load option, or a value inside it, is a secret that is not masked yet."""
    return _hidden(name, value) is not value


def hidden(options: Options) -> Options:
    """Return load options with a `Secret` for each secret among them, at any depth.

    If no secret is unmasked, the same object is returned.
    """
    if options is None:
        return options
    shown = {name: _hidden(name, value) for name, value in options.items()}
    changed = any(shown[name] is not value for name, value in options.items())
    return cast("Options", shown) if changed else options


def secrets_of(options: Mapping[str, object]) -> tuple[Secret, ...]:
    """Return the secrets among options that are `hidden`, in the order of their names."""
    secrets: list[Secret] = []
    for _, value in sorted(options.items()):
        if isinstance(value, Secret):
            secrets.append(value)
        elif isinstance(value, Mapping):
            secrets += secrets_of(value)
    return tuple(secrets)


def refuse_secrets(options: Mapping[str, object], place: str) -> None:
    """Raise `InvalidOptionError` for a secret among options that are stored or sent unmasked.

    ``place`` names the processes in whose environment it belongs.
    """
    for name, value in options.items():
        if _is_secret(name) and value:
            expected = (
                "no secret, because these options are stored or sent. Set it in the environment of "
                f"{place} (CORE_REMOTE_API_KEY for the key of a server)"
            )
            raise InvalidOptionError(name, Secret(value), expected)
        if isinstance(value, Mapping):
            refuse_secrets(value, place)


def checked_keys(options: Mapping[str, object]) -> dict[str, object]:
    """Return load options, `hidden`, with each API key checked to be valid in a header.

    Raises `InvalidOptionError`, which does not contain the key.
    """
    return {
        name: header_key(name, value)
        if name.lower().endswith(_KEY) and isinstance(value, Secret)
        else value
        for name, value in hidden(options).items()
    }


def header_key(option: str, key: Secret) -> Secret:
    """Return a key without the line ending that a file or a shell adds.

    Raises `InvalidOptionError` if it is not a string of visible ASCII characters.
    """
    stripped = _stripped(key)
    if stripped is None:
        raise InvalidOptionError(option, key, _EXPECTED)
    return stripped


def _is_secret(name: str) -> bool:
    return name.lower() in _NAMES or name.lower().endswith(_ENDINGS)


def _hidden(name: str, value: object) -> object:
    if isinstance(value, Secret):
        return value
    if isinstance(value, Mapping):
        if not is_secret(name):
            return hidden(value)
        masked = {key: Secret(it) for key, it in value.items()}
        return value if all(isinstance(it, Secret) for it in value.values()) else masked
    if is_secret(name):
        return Secret(value)
    if isinstance(value, list | tuple):
        items = [_hidden("", item) for item in value]
        same = all(one is other for one, other in zip(items, value, strict=True))
        return value if same else items
    return value


def _stripped(key: Secret) -> Secret | None:
    """Return the key without surrounding line endings; None if it is not valid in a header."""
    value = key.reveal()
    if not isinstance(value, str) or not _VISIBLE.fullmatch(value.strip("\r\n")):
        return None
    return Secret(value.strip("\r\n"))
