"""Load options that are shown to nobody, such as the key of a server.

A key is a `Secret` from the option to the request that carries it: messages, logs, reprs and files
get a mask. Which options are secret is known by their names alone, here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from core.errors import InvalidOptionError

Options = TypeVar("Options", bound="Mapping[str, object] | None")

_ENDINGS = ("api_key", "access_token", "auth_token", "password", "secret")
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
    the mask. It cannot be pickled, for a pickle is a file that is shared.
    """

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value.reveal() if isinstance(value, Secret) else value

    def reveal(self) -> Any:
        """Return the value. Only what sends it to its destination needs it."""
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
            "A secret is not pickled: it would be in a file, or on a network. Set it in the "
            "environment of the other process (CORE_REMOTE_API_KEY for the key of a server)."
        )


def is_secret(name: str) -> bool:
    """Return whether a load option of this name is a secret, or holds some."""
    return name == _ENVIRONMENT or name.lower().endswith(_ENDINGS)


def hidden(options: Options) -> Options:
    """Return load options with a `Secret` for each secret among them, at any depth.

    Options without one that is in the open are returned as they are, the same object.
    """
    if options is None:
        return options
    shown = {name: _hidden(name, value) for name, value in options.items()}
    changed = any(shown[name] is not value for name, value in options.items())
    return cast("Options", shown) if changed else options


def secrets_of(options: Mapping[str, object]) -> tuple[Secret, ...]:
    """Return the secrets among options that are `hidden`, in the order of their names."""
    found: list[Secret] = []
    for _, value in sorted(options.items()):
        if isinstance(value, Secret):
            found.append(value)
        elif isinstance(value, Mapping):
            found += secrets_of(value)
    return tuple(found)


def refuse_secrets(options: Mapping[str, object], place: str) -> None:
    """Raise `InvalidOptionError` for a secret among options that are stored or sent as they are.

    ``place`` names the processes in whose environment it belongs.
    """
    for name, value in options.items():
        if name.lower().endswith(_ENDINGS) and value:
            expected = (
                f"no secret here, where options are stored or sent: set it in the environment of "
                f"{place} (CORE_REMOTE_API_KEY for the key of a server)"
            )
            raise InvalidOptionError(name, Secret(value), expected)
        if isinstance(value, Mapping):
            refuse_secrets(value, place)


def checked_keys(options: Mapping[str, object]) -> dict[str, object]:
    """Return load options, `hidden`, each key among them one that a header can hold.

    Raises `InvalidOptionError`, which does not show the key.
    """
    return {
        name: header_key(name, value)
        if name.lower().endswith(_KEY) and isinstance(value, Secret)
        else value
        for name, value in hidden(options).items()
    }


def header_key(option: str, key: Secret) -> Secret:
    """Return a key without the line end that a file or a shell adds.

    Raises `InvalidOptionError` where it is not a string of visible ASCII characters.
    """
    stripped = _stripped(key)
    if stripped is None:
        raise InvalidOptionError(option, key, _EXPECTED)
    return stripped


def _hidden(name: str, value: object) -> object:
    if isinstance(value, Secret):
        return value
    if isinstance(value, Mapping):
        if not is_secret(name):
            return hidden(value)
        masked = {key: Secret(it) for key, it in value.items()}
        return value if all(isinstance(it, Secret) for it in value.values()) else masked
    return Secret(value) if is_secret(name) else value


def _stripped(key: Secret) -> Secret | None:
    """Return the key without line ends at its ends; None where a header cannot hold it."""
    value = key.reveal()
    if not isinstance(value, str) or not _VISIBLE.fullmatch(value.strip("\r\n")):
        return None
    return Secret(value.strip("\r\n"))
