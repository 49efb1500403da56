"""Reading of untrusted files: within limits, or rejected with a reason.

A file must be a regular one of bounded size, in UTF-8, with a bounded number of values that are
nested to a bounded depth. Its reader converts `Refused` to a typed error, through a `FileKind` or
itself; `core.system.fields` checks the values.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import BinaryIO, TypeVar

T = TypeVar("T")


def hold(storage: list[T], make: Callable[[], T]) -> None:
    """Append the result of ``make``: a C function, a class, or a `functools.partial` of one.

    It is made and stored in one call into C, during which no handler runs: ``made = make()`` would
    lose it if a handler raises after the call.
    """
    storage.extend(starmap(make, ((),)))


MOST_DEPTH = 64
"""Maximum nesting of lists and tables: config.json has 5; Python's limit depends on the caller."""

MOST_VALUES = 2_000_000
"""Maximum number of values, of up to 70 bytes each; 100,000 calibrated labels need half of it."""

MOST_KEY_PARTS = 16
"""Maximum parts of a dotted key in TOML: tomllib's time grows with their square."""

MOST_TABLES = 20_000
"""Maximum headers, and dots in keys, of TOML: tomllib takes a kilobyte for each."""

# Opening a pipe without a writer would block; Windows has no such flag.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)

# The quoted parts of TOML, up to the end where nothing closes it, and its comments.
_QUOTED = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+"{0,5}'
    r"|'''(?:[^']++|'(?!''))*+'{0,5}"
    r'|"(?:[^"\\\n]++|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+",
    re.DOTALL,
)
# The rest between two signs; a key is followed by "=", or is the first of a line that begins so.
_PIECE = re.compile(r"(^[ \t]*\[+)?[^=\n,\[\]{}]++(=?)", re.MULTILINE)


class Refused(Exception):
    """Reason why a file, or a place in it, cannot be used."""


class NewerFormat(Refused):
    """Format number of a file that is newer than the supported ones."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file: its name, its error, the next step, and its maximum size in bytes.

    ``error`` is a class that takes a message. The size by default is that of `MOST_VALUES` values.
    """

    name: str
    error: type[Exception]
    advice: str
    most_bytes: int = 32 * 2**20

    @contextmanager
    def errors(self, where: str = "This") -> Iterator[None]:
        """Convert `Refused` to the error of this kind."""
        try:
            yield
        except NewerFormat as newer:
            raise self.error(f"{where} is {self.name} in {newer}. Upgrade to read it.") from None
        except Refused as refused:
            raise self.error(f"{where} is not {self.name}: {refused}. {self.advice}") from None

    @contextmanager
    def named(self, path: str | os.PathLike[str]) -> Iterator[None]:
        """Prepend the file's name to the messages of this kind's errors."""
        try:
            yield
        except self.error as error:
            raise type(error)(f"{os.fspath(path)!r}: {error}") from error

    def read(self, path: str | os.PathLike[str]) -> bytes:
        """Return the bytes of a file. Raises the error of this kind, and OSError."""
        with self.errors(repr(os.fspath(path))):
            return read_limited(path, self.most_bytes)

    def writable(self, text: str) -> str:
        """Return a text that `read` accepts. Raises the error of this kind if it is too large."""
        try:
            if len(text.encode()) > self.most_bytes:
                raise Refused(f"it is larger than {self.most_bytes} bytes")
            _check_count(text)
        except Refused as refused:
            raise self.error(f"This is too large to be read again: {refused}. Save less.") from None
        return text


def check_format(number: object, newest: int) -> None:
    """Raise `NewerFormat` for a format number above ``newest``, `Refused` for an invalid one."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise Refused(f"its format is {shown(number)}, not a number from 1")
    if number > newest:
        raise NewerFormat(f"format {shown(number)}, but this version reads formats up to {newest}")


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file, never waiting for a pipe or a device. Raises `Refused`, OSError."""
    try:
        file = open(path, "rb", opener=_at_once)  # noqa: SIM115 - the caller closes it
    except ValueError as error:  # a null character in the path
        raise Refused(str(error)) from None
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise Refused("it is a pipe or a device, not a file")


def _at_once(path: str, flags: int) -> int:
    """Open a file, for `open`, without waiting for a pipe's writer."""
    opened: list[int] = []
    try:
        hold(opened, partial(os.open, path, flags | _AT_ONCE))
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise
    return opened[0]


def read_limited(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the bytes of a regular file; a larger one is not read. Raises `Refused`, OSError."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise Refused(f"it is larger than {limit} bytes")
        return file.read(size)


def json_value(data: bytes | str, *, unique: bool = True) -> object:
    """Parse JSON; ``unique`` rejects duplicate keys. Raises `Refused`.

    Numbers may be NaN or infinite, as Python writes them.
    """
    text = _decoded(data)
    _check_count(text)
    value = _parsed("JSON", partial(json.loads, object_pairs_hook=_once if unique else None), text)
    _check_depth(value)
    return value


def toml_table(data: bytes | str) -> dict[str, object]:
    """Parse TOML. Raises `Refused`."""
    import tomllib

    text = _decoded(data)
    _check_count(text)
    _check_keys(text)
    table = _parsed("TOML", tomllib.loads, text)
    _check_depth(table)
    return table


def shown(value: object, most: int = 60) -> str:
    """Return a value for a message, shortened if it is long."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # a number of thousands of digits
        return f"a {type(value).__name__} that is too large to display"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _decoded(data: bytes | str) -> str:
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"it is not UTF-8 (byte {error.start})") from None


def _check_count(text: str) -> None:
    """Raise `Refused` for too many values, estimated from separators; texts may have some too."""
    if sum(map(text.count, "[{,=\n")) > MOST_VALUES:
        raise Refused(f"it has more than {MOST_VALUES} values")


def _check_keys(text: str) -> None:
    tables = 0
    for piece in _PIECE.finditer(_QUOTED.sub("_", text)):
        header, equals = piece.groups()
        if header or equals:
            dots = piece[0].count(".")
            if dots >= MOST_KEY_PARTS:
                raise Refused(f"it has a key of more than {MOST_KEY_PARTS} parts")
            tables += dots + bool(header)
    if tables > MOST_TABLES:
        raise Refused(f"it has more than {MOST_TABLES} tables")


def _parsed(language: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except RecursionError:
        raise Refused("it is nested too deeply") from None
    except ValueError as error:
        if type(error) is ValueError:  # of int(); the parsers' own errors are subclasses
            raise Refused("it has a number with too many digits") from None
        raise Refused(f"it is not {language}: {error}") from None


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise Refused(f"it is nested more than {MOST_DEPTH} levels deep")


def _inside(value: object) -> Iterator[object]:
    """Yield the lists and tables in a list or a table."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (item for item in items if isinstance(item, dict | list))


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise Refused(f"the key {shown(counts.most_common(1)[0][0])} occurs twice")
    return table
