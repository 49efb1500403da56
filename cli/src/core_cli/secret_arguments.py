"""Keeps secrets of the command line out of journals and printed commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import click

from core.secret import holds_secret, is_secret
from core_cli.settings import value_of

_KEY = "api_key"
_VARIABLE = "CORE_REMOTE_API_KEY"
_FLAG, _FLAG_AND_EQUALS = "--option", "--option="
_SHORT = re.compile("-[A-Za-z]*O")  # with other short flags before it, perhaps


def public_pairs(pairs: Iterable[str]) -> list[str]:
    """Return the ``K=V`` pairs of ``-O`` without those that are secret."""
    return [pair for pair in pairs if not _is_secret(pair)]


def public_arguments(arguments: Sequence[str]) -> tuple[list[str], str]:
    """Return the arguments of the current command, and a prefix for its name.

    An API key is replaced by its environment variable, which ``ps`` does not show. Any other
    secret is shown as ``NAME=...``.
    """
    context = click.get_current_context(silent=True)
    pairs = (context.params.get("pairs") if context else None) or ()
    secret = [pair for pair in pairs if _is_secret(pair)]
    shown: list[str] = []
    for argument in arguments:
        pair = next(filter(argument.endswith, secret), None)
        if pair is None:
            shown.append(argument)
            continue
        flag = argument.removesuffix(pair) or (shown.pop() if shown else "")
        if flag not in (_FLAG, _FLAG_AND_EQUALS) and _SHORT.fullmatch(flag) is None:
            shown.append(flag)  # not an option: the same text elsewhere
            shown.append("...")
            continue
        if _SHORT.fullmatch(flag) and flag != "-O":
            shown.append(flag[:-1])
        if _name(pair) != _KEY:
            shown += ["-O", f"{_name(pair)}=..."]
    has_key = any(_name(pair) == _KEY for pair in secret)
    return shown, f'{_VARIABLE}="${_VARIABLE}" ' if has_key else ""


def _is_secret(pair: str) -> bool:
    """Return whether a ``K=V`` pair is or contains a secret; V may be JSON, as ``-O`` reads it."""
    name, _, text = pair.partition("=")
    return is_secret(name) or holds_secret(name, value_of(text))


def _name(pair: str) -> str:
    return pair.partition("=")[0]
