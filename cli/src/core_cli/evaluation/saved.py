"""Saved evaluations: read, recomputed, compared."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import click

from core.system.fields import Fields
from core.system.limited_files import Refused, json_value
from core_cli.evaluation.asker import Marks
from core_cli.jobs.journal import Journal
from core_tasks.agreement.measures import share
from core_tasks.evaluation.result import Record

_LONGEST = 2**26  # bytes of a line, enough for an item with all its samples
_BEYOND = 1e-6  # tolerance of probabilities beyond 0 or 1, for rounding


def records(name: str) -> Iterator[tuple[str, Record]]:
    """Yield the items of a file that ``eval -o`` wrote, each with its line in the input.

    Raises `click.UsageError` for any other file.
    """
    has_items = False
    with open(name, "rb") as stream:
        for number, line in enumerate(_lines(name, stream), 1):
            line = line.removeprefix(BOM_UTF8).strip().rstrip(b",")
            if line in (b"", b"[", b"]"):
                continue
            has_items = True
            yield _record(name, number, line)
    if not has_items:
        raise click.UsageError(f"{name} contains no items.")


def _lines(name: str, stream: BinaryIO) -> Iterator[bytes]:
    while line := stream.readline(_LONGEST):
        if len(line) == _LONGEST:
            raise click.UsageError(
                f"{name} is not a saved evaluation: it has a line of {_LONGEST} bytes."
            )
        yield line


def _record(name: str, number: int, line: bytes) -> tuple[str, Record]:
    try:
        record = Fields(json_value(line))
        _check(record)
    except Refused as refused:
        raise click.UsageError(
            f"{name}, line {number} is not an item written by eval -o or --json: {refused}."
        ) from None
    return f"line {record.integer('line')}", cast("Record", record.values)


def _check(record: Fields) -> None:
    """Raise `Refused` if a record is not a scored item (`ItemResult.to_dict`)."""
    record.integer("line")
    record.text("gold")
    for name in ("prediction", "right", "error"):
        record.required(name)
    if record.given("prediction"):
        record.text("prediction")
    for name in ("right", "right_normalised", "among_examples"):
        if record.given(name):
            record.flag(name)
    if record.given("tokens"):
        record.integer("tokens")
    if record.given("sureness"):
        record.number("sureness", -_BEYOND, 1 + _BEYOND)

    # Some items lack these.
    if record.given("probabilities"):
        shares = record.table("probabilities")
        for choice in map(str, shares.values):
            if shares.given(choice):
                shares.number(choice, -_BEYOND, 1 + _BEYOND)
    if record.given("samples"):
        record.flag("majority_right")
        for sample in record.tables("samples"):
            sample.flag("right")
    if record.given("batch_sizes"):
        sizes = record.table("batch_sizes")
        for size in map(str, sizes.values):
            again = sizes.table(size)
            again.flag("right")
            again.flag("same")


def reckon(name: str, pass_at: tuple[int, ...]) -> Marks:
    """Return the recomputed scores of a saved evaluation."""
    marks = Marks(pass_at)
    for _, record in records(name):
        marks.tally.add(record)
    known = marks.to_dict().get("pass_at", {})
    if missing := [k for k in pass_at if str(k) not in known]:
        raise click.UsageError(
            f"{name} has fewer than {missing[0]} samples per item, too few for --pass-at."
        )
    return marks


def speed_of(name: str) -> Mapping[str, Any]:
    """Return an evaluation's speed from its journal; empty without one."""
    path = Path(name)
    if not path.with_name(f"{path.name}.journal").exists():
        return {}
    with Journal(path) as journal:
        blocks = journal.blocks
    seconds = sum(block.seconds for block in blocks)
    tokens = sum(block.cost[4] for block in blocks if len(block.cost) > 4)
    return {
        "seconds": seconds,
        "items_per_second": share(sum(block.rows for block in blocks), seconds),
        "generated_tokens_per_second": share(tokens, seconds) if tokens else None,
    }
