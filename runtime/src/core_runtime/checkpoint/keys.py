"""The treatment of the keys of a model's JSON files, as tables of entries.

No key is ignored silently: an unsupported key that changes results is refused with an error that
names it, and an unlisted key is refused or reported. docs/model_files.md is generated from the
tables.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from core.errors import UnsupportedModelError
from core_runtime.checkpoint.fields import ConfigFields

Verdict = Literal["honoured", "refused", "harmless", "reported"]
_LOG = logging.getLogger("core_runtime")
EMPTY: tuple[object, ...] = (None, False, [], {}, "")
"""The values that change nothing, unless an entry has others."""


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The treatment of one key, and the reason for it.

    ``neutral``: the values that change nothing.
    """

    verdict: Verdict
    why: str
    neutral: tuple[object, ...] = EMPTY

    def is_neutral(self, value: object) -> bool:
        """Return True for a value that changes nothing."""
        return any(_equal(value, plain) for plain in self.neutral)


def honoured(why: str) -> KeyRule:
    """Return the entry of a key that is read."""
    return KeyRule("honoured", why)


def refused(why: str, *neutral: object) -> KeyRule:
    """Return the entry of a key that is refused, unless it is empty or ``neutral``."""
    return KeyRule("refused", why, (*EMPTY, *neutral))


def harmless(why: str) -> KeyRule:
    """Return the entry of a key that changes no result here."""
    return KeyRule("harmless", why)


def reported(why: str, *neutral: object) -> KeyRule:
    """Return the entry of a key that is logged, unless it is empty or ``neutral``."""
    return KeyRule("reported", why, (*EMPTY, *neutral))


def same(names: str, key: KeyRule) -> dict[str, KeyRule]:
    """Return one entry for several names, separated by spaces."""
    return dict.fromkeys(names.split(), key)


UNKNOWN = reported("it is in no table")


def check_keys(
    fields: ConfigFields, keys: Mapping[str, KeyRule], remedy: str, unknown: KeyRule = UNKNOWN
) -> tuple[str, ...]:
    """Return the keys to report, as ``name=value``; ``unknown`` is the entry of those without one.

    Raises `UnsupportedModelError` for a key that is refused; ``remedy`` is the next step.
    """
    notes = []
    for name, value in fields.values.items():
        key = keys.get(name, unknown)
        if key.is_neutral(value):
            continue
        if key.verdict == "refused":
            raise UnsupportedModelError(
                f"{fields.where}: {name}={value!r:.60} is not supported: {key.why}. {remedy}"
            )
        if key.verdict == "reported":
            notes.append(f"{name}={value!r:.60}")
    return tuple(notes)


def report(notes: tuple[str, ...], where: str) -> None:
    """Log the result of `check_keys`, once per file in this process."""
    if notes:
        warn_once(f"{where}: keys without effect here: {', '.join(notes)}")


@cache
def warn_once(text: str) -> None:
    """Log a warning, given without its full stop, once per process."""
    _LOG.warning("%s. docs/model_files.md lists what is read.", text)


def _equal(value: object, plain: object) -> bool:
    """Return whether two values are equal in JSON, where 0 is not false."""
    return isinstance(value, bool) == isinstance(plain, bool) and value == plain
