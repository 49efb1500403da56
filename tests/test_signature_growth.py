"""The contract grows at its ends alone: today's listing extends that of its version.

``data/public_signatures_of_version_2.txt`` and its neighbour are the listings with which version 2
began. They are written once for each version, and never again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import core

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("listing", ["public_signatures", "author_signatures"])
def test_todays_listing_extends_that_of_its_version(listing: str) -> None:
    first = DATA / f"{listing}_of_version_{core.PROTOCOL_VERSION}.txt"
    breaks = broken(first.read_text("utf-8"), (DATA / f"{listing}.txt").read_text("utf-8"))
    assert not (found := list(breaks)), "\n".join(found)


def broken(old: str, new: str) -> Iterator[str]:
    """Yield what a new listing takes away from an old one, or changes in it."""
    before, now = parsed(old), parsed(new)
    for name, entry in before.items():
        if name not in now:
            yield f"{name} is gone"
        elif entry.head != now[name].head:
            yield f"{name}: {entry.head} has become {now[name].head}"
        else:
            yield from broken_members(name, entry, now[name])


@dataclass(frozen=True)
class Entry:
    """A public name: its first line, and the lines of its members by name."""

    head: str
    members: Mapping[str, str]

    @property
    def is_protocol(self) -> bool:
        return "Protocol" in self.head

    @property
    def is_positional(self) -> bool:
        """True of a dataclass whose fields are taken by position."""
        fields = [line for line in self.members.values() if is_field(line)]
        return bool(fields) and not self.head.endswith("keyword-only") and "(dict)" not in self.head


def parsed(listing: str) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for line in listing.splitlines():
        key = re.split(r"[( :=]", line.removeprefix("class "), maxsplit=1)[0]
        name, _, member = key.partition(".")
        if member:
            members = {**entries[name].members, member: line.removeprefix(f"{name}.")}
            entries[name] = Entry(entries[name].head, members)
        else:
            head = line if line.startswith("class ") else "function"
            members = {} if line.startswith("class ") else {"": line}
            entries[name] = Entry(head, members)
    return entries


def broken_members(name: str, old: Entry, new: Entry) -> Iterator[str]:
    for member, line in old.members.items():
        if member not in new.members:
            yield f"{name}.{member} is gone"
        elif line != new.members[member] and not extends(line, new.members[member]):
            yield f"{name}.{member}: {line} has become {new.members[member]}"

    added = [member for member in new.members if member not in old.members]
    if old.is_protocol and added:
        yield f"{name} asks for more of what was written before: {', '.join(added)}"
    if old.is_positional:
        fields = [member for member, line in new.members.items() if is_field(line)]
        kept = [member for member, line in old.members.items() if is_field(line)]
        if fields[: len(kept)] != kept:
            yield f"{name} takes its fields in another order: {', '.join(fields)}"
        yield from (
            f"{name}.{member} has no default"
            for member in fields[len(kept) :]
            if " = " not in new.members[member]
        )


def is_field(line: str) -> bool:
    return re.match(r"\w+: ", line) is not None and not line.endswith("(property)")


def extends(old: str, new: str) -> bool:
    """True if a function takes what it took before, in the same places, and needs no more."""
    if "(" not in old or ") -> " not in old or ") -> " not in new:
        return False
    (before, returned), (now, returns) = cut(old), cut(new)
    if returned != returns:
        return False
    positional, rest = halves(before)
    positional_now, rest_now = halves(now)
    if positional_now[: len(positional)] != positional or not set(rest) <= set(rest_now):
        return False
    more = positional_now[len(positional) :] + [each for each in rest_now if each not in rest]
    return all(" = " in each or each.startswith("*") or each == "/" for each in more)


def cut(function: str) -> tuple[list[str], str]:
    """Return the parameters of a function, and what it returns."""
    inside, _, returned = function.partition("(")[2].rpartition(") -> ")
    parts: list[str] = []
    depth = 0
    for piece in re.split(r"(, )", inside):
        if piece == ", " and depth == 0:
            parts.append("")
            continue
        depth += sum(map(piece.count, "[(")) - sum(map(piece.count, "])"))
        parts[-1:] = [(parts[-1] if parts else "") + piece]
    return parts, returned


def halves(parameters: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what is taken by position, without the mark "/", and the rest, without "*"."""
    after = [index for index, each in enumerate(parameters) if each.startswith("*")]
    end = after[0] if after else len(parameters)
    only = parameters.index("/") if "/" in parameters else 0
    positional = [
        f"{'only ' if index < only else ''}{each}"
        for index, each in enumerate(parameters[:end])
        if each != "/"
    ]
    return positional, [each for each in parameters[end:] if each != "*"]


OLD = """\
class Answer(object)
Answer.text: str
Answer.error: Exception | None = None
class Config(object) keyword-only
Config.top_k: int = 0
class Kind(StrEnum)
Kind.ONE = 'one'
class Model(Protocol)
Model.ask(self, prompt: str, config: Config | None = None, /, **options: Unpack[Options]) -> Answer
class Options(dict)
Options.top_k: int
class Scorer(object)
Scorer.score(self, prompts: Sequence[str], pairs: tuple[int, str] = (1, 'a'), /) -> list[float]
VERSION = 2
load(path: str, kind: Literal['a', 'b'] = 'a') -> Model
"""


LAST_FIELD = "Answer.error: Exception | None = None\n"


def changed(old: str, new: str) -> list[str]:
    assert old in OLD
    return list(broken(OLD, OLD.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LAST_FIELD, f"{LAST_FIELD}Answer.mass: float = 0.0\n"),
        ("Config.top_k: int = 0\n", "Config.heat: float = 0.0\nConfig.top_k: int = 0\n"),
        ("Kind.ONE = 'one'\n", "Kind.NULL = 'null'\nKind.ONE = 'one'\n"),
        ("Options.top_k: int\n", "Options.heat: float\nOptions.top_k: int\n"),
        ("(1, 'a'), /)", "(1, 'a'), config: Config | None = None, /, **options: Unpack[Options])"),
        ("= 'a') -> Model", "= 'a', again: bool = False) -> Model"),
        ("= 'a') -> Model", "= 'a', *, again: bool = False) -> Model"),
        ("VERSION = 2\n", "VERSION = 2\nask(x: int) -> int\n"),
        ("class Options(dict)", "class New(Protocol)\nNew.look(self) -> int\nclass Options(dict)"),
    ],
)  # fmt: skip
def test_growth_at_an_end_is_no_break(old: str, new: str) -> None:
    assert changed(old, new) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Answer.error", "Answer.mass: float = 0.0\nAnswer.error"),
        (LAST_FIELD, f"{LAST_FIELD}Answer.mass: float\n"),
        (LAST_FIELD, ""),
        ("class Config(object) keyword-only", "class Config(object)"),
        ("Config.top_k: int = 0", "Config.top_k: int = 1"),
        ("Kind.ONE = 'one'", "Kind.ONE = 'two'"),
        ("Options.top_k: int\n", ""),
        ("class Options(dict)", "Model.tell(self) -> int\nclass Options(dict)"),
        ("/, **options: Unpack[Options]) -> Answer", "/) -> Answer"),
        ("config: Config | None = None, /", "config: Config | None = None"),
        ("prompts: Sequence[str]", "config: Config | None = None, prompts: Sequence[str]"),
        ("(1, 'a'), /)", "(1, 'a'), config: Config, /)"),
        ("-> list[float]", "-> list[int]"),
        ("= 'a') -> Model", "= 'b') -> Model"),
        ("load(path: str, kind", "load(path: str, *, kind"),
        ("VERSION = 2", "VERSION = 3"),
        ("load(path: str", "load_model(path: str"),
    ],
)  # fmt: skip
def test_anything_else_is_a_break(old: str, new: str) -> None:
    assert len(changed(old, new)) >= 1
