"""Evaluations that were written: read again, reckoned again, compared."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from core.agreement.measures import share
from core.cli.evaluation.asker import Marks
from core.cli.jobs.journal import Journal
from core.evaluation.result import Record

_NEEDED = {"line", "gold", "prediction", "right", "error"}


def records(name: str) -> Iterator[tuple[str, Record]]:
    """The items of a file that ``eval -o`` wrote, each with its line in the input.

    Raises `click.UsageError` for a file of anything else.
    """
    found = False
    with open(name, "rb") as stream:
        for number, line in enumerate(stream, 1):
            line = line.removeprefix(BOM_UTF8).strip().rstrip(b",")
            if line in (b"", b"[", b"]"):
                continue
            found = True
            yield _record(name, number, line)
    if not found:
        raise click.UsageError(f"{name} holds no items.")


def _record(name: str, number: int, line: bytes) -> tuple[str, Record]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not record.keys() >= _NEEDED:
        raise click.UsageError(
            f"{name}, line {number}: this is no item that eval has written with -o, or with --json."
        )
    return f"line {record['line']}", record


def reckon(name: str, pass_at: tuple[int, ...]) -> Marks:
    """The marks of a written evaluation, added up again."""
    marks = Marks(pass_at)
    for _, record in records(name):
        marks.tally.add(record)
    known = marks.to_dict().get("pass_at", {})
    if missing := [k for k in pass_at if str(k) not in known]:
        raise click.UsageError(f"{name} has not {missing[0]} samples of an item, for --pass-at.")
    return marks


def speed_of(name: str) -> Mapping[str, Any]:
    """What its journal tells of an evaluation's speed; nothing where it has none."""
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
