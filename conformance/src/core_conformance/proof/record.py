"""The record of kills: the checks that each saboteur fails, in the file ``kills.txt``.

For a poor model it has the checks that are not testable.

`kills` writes the file by running the checks; nobody types it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from core_conformance.checking.check import all_checks
from core_conformance.proof.poor_models import POOR_MODELS
from core_conformance.proof.registry import Saboteur, all_saboteurs

FILE = Path(__file__).with_name("kills.txt")
_SOMETIMES = "sometimes"
_HEAD = f"""\
# The checks that each saboteur fails, and those that each poor model leaves without a verdict.
# Written by python -m core_conformance.proof.kills --write
# "{_SOMETIMES}": it fails the check in some runs and passes it in others.
"""


@dataclass(frozen=True, slots=True)
class Kills:
    """The ids of the checks that a saboteur fails ``always``, and those it fails ``sometimes``."""

    always: frozenset[str] = frozenset()
    sometimes: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """Every check that may fail."""
        return self.always | self.sometimes

    def updated(self, seen: Kills, checks_run: Collection[str]) -> Kills:
        """Return these kills after runs of the checks ``checks_run``, which gave ``seen``.

        A check recorded as "sometimes" stays so: a few runs that agree prove nothing.
        """
        sometimes = self.sometimes | seen.sometimes
        return Kills(self.always.difference(checks_run) | seen.always - sometimes, sometimes)


@cache
def recorded() -> Mapping[str, Kills]:
    """Return the kills of each saboteur by name, as the file has them."""
    return parsed(FILE.read_text("utf-8"))


def expected(broken: Saboteur) -> Kills:
    """Return the recorded kills, and the refusals of a capability that is not declared."""
    kills = recorded().get(broken.name, Kills())
    return Kills(kills.always | broken.refuses(), kills.sometimes)


def known(kills: Mapping[str, Kills]) -> dict[str, Kills]:
    """Return the kills of saboteurs and models that exist, of checks that exist."""
    ids = all_checks().keys()
    return {
        name: Kills(of.always & ids, of.sometimes & ids)
        for name, of in kills.items()
        if name in subjects()
    }


def subjects() -> list[str]:
    """Return the names of all saboteurs and poor models."""
    return [*all_saboteurs(), *(poor.name for poor in POOR_MODELS)]


def parsed(text: str) -> dict[str, Kills]:
    """Return what a file with this text records. Raises ValueError for a line of another form."""
    always: dict[str, set[str]] = {}
    sometimes: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, check, *rest = line.split()
        if rest not in ([], [_SOMETIMES]):
            raise ValueError(f"{FILE.name} has a line {line!r}: write the file again.")
        (sometimes if rest else always).setdefault(name, set()).add(check)
    return {
        name: Kills(frozenset(always.get(name, ())), frozenset(sometimes.get(name, ())))
        for name in sorted(always.keys() | sometimes.keys())
    }


def written(kills: Mapping[str, Kills]) -> str:
    """Return the text of a file that records these kills: a line for each pair, sorted."""
    lines = [
        f"{name} {check}" + (f" {_SOMETIMES}" if check in of.sometimes else "")
        for name, of in sorted(kills.items())
        for check in sorted(of.all)
    ]
    return _HEAD + "".join(f"{line}\n" for line in lines)
