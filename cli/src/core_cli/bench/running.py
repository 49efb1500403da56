"""Turns the flags of ``bench`` into measurements and their output."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core.system import outputs
from core_cli import exits, output, settings
from core_cli.bench import tables
from core_cli.bench.cases import KINDS, Contestant, cases
from core_cli.bench.measuring import Measurement, measured
from core_cli.loading import explain, load
from core_cli.sides import with_side
from core_tasks import svg

if TYPE_CHECKING:
    from core_cli.loading import Loaded

_COMPARED = ("model", "backend", "adapter_path")
# Measurements as JSON, JSON lines, CSV and Markdown: each form begins with our own names.
_FILE = outputs.Kind(
    "a file of measurements",
    re.compile(
        rb'\[?\{"model_filename": ?"|model_filename,backend,test,|\| model \| backend \| test \|'
    ),
    private=False,
)
_STEADY = {"prefix_cache": 0}
"""What is kept of earlier prompts would be measured instead of the machine."""


def run(flags: Mapping[str, Any]) -> None:
    """Load the models, measure them in turns, show the results.

    Raises `OutputError` for a file that something else wrote, and `CommandFailed` where nothing
    could be measured.
    """
    settings.need_model(flags)
    _check_outputs(flags)
    sides = [dict(flags), *(with_side(side, flags, _COMPARED) for side in flags["compare"])]
    chosen = cases(flags["only"] or KINDS, flags["pp"], flags["tg"], flags["batch_size"])
    with ExitStack() as stack:
        contestants = [_loaded(stack, side, flags["verbose"]) for side in sides]
        _tell_apart(contestants, flags["compare"])
        if flags["verbose"] or output.is_terminal():
            for each in contestants:
                output.say(f"{each.name}, {each.backend}: loaded in {each.load_seconds:.2f} s")

        found: list[Measurement] = []
        for group in measured(
            contestants,
            chosen,
            repetitions=flags["repetitions"],
            warmup=flags["warmup"],
            begun=lambda name: output.say(f"{name} ..."),
        ):
            found += group

    _show(found, flags)
    if not any(each.samples for each in found):
        raise exits.CommandFailed("No test could be measured; the note of each gives the reason.")


def _check_outputs(flags: Mapping[str, Any]) -> None:
    """Raise `OutputError` before the work for outputs that may not be written or coincide."""
    for name, kind in (("output", _FILE), ("plot", svg.KIND)):
        if flags[name]:
            outputs.check(flags[name], kind)
    named = [os.path.realpath(flags[name]) for name in ("output", "plot") if flags[name]]
    if len(set(named)) < len(named):
        raise click.UsageError(
            f"-o and --plot name the same file: {flags['output']}. Choose another name for one."
        )


def _loaded(stack: ExitStack, side: Mapping[str, Any], verbose: bool) -> Contestant:
    loaded: Loaded = load(side["model"], settings.load_config(side), None, _STEADY)
    stack.enter_context(loaded.model)
    if verbose:
        explain(loaded)
    capabilities = frozenset(loaded.capabilities)
    name, backend = Path(loaded.location).name, loaded.backend.name
    return Contestant(name, loaded.model, backend, capabilities, loaded.seconds)


def _tell_apart(contestants: Sequence[Contestant], sides: Sequence[str]) -> None:
    """Rename contestants of equal name by their ``--compare`` value."""
    seen = {(contestants[0].name, contestants[0].backend)}
    for each, side in zip(contestants[1:], sides, strict=True):
        if (each.name, each.backend) in seen:
            each.name = f"{each.name} {side}"
        seen.add((each.name, each.backend))


def _show(found: Sequence[Measurement], flags: Mapping[str, Any]) -> None:
    form = flags["to"] or _form_of(flags["output"])
    if form == "table" and not flags["output"]:
        rows = tables.rows(found)
        kept = [n for n in range(len(tables.COLUMNS)) if any(row[n] for row in rows)]
        names = [tables.COLUMNS[n].upper() for n in kept]
        output.write_table(names, [[row[n] for n in kept] for row in rows])
    else:
        data = _encoded(form, found)
        if flags["output"]:
            outputs.write(flags["output"], data, _FILE)
        else:
            output.write_bytes(data)
    if flags["plot"]:
        outputs.write(flags["plot"], tables.svg(found), svg.KIND)

    peaks: dict[str, int] = {}
    for each in found:
        name = f"{each.contestant}, {each.backend}"
        peaks[name] = max(peaks.get(name, 0), each.peak_memory)
    for name, most in peaks.items():
        if most:
            output.say(f"{name}: peak memory {output.human_size(most)}")


def _form_of(name: str | None) -> str:
    forms = {".json": "json", ".jsonl": "jsonl", ".csv": "csv", ".md": "md"}
    return forms.get(Path(name).suffix, "json") if name else "table"


def _encoded(form: str, found: Sequence[Measurement]) -> bytes:
    records = [each.to_dict() for each in found]
    if form in ("md", "table"):
        return tables.markdown(found).encode()
    if form == "jsonl":
        return output.json_lines(records)
    if form == "json":
        return output.json_lines([records])
    text = io.StringIO()
    names = [name for name in records[0] if not name.startswith("samples")]
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode()
