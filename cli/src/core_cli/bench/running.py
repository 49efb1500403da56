"""Turns the flags of ``bench`` into measurements and their output."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from core.system import outputs
from core_cli import exits, output
from core_cli.bench import tables
from core_cli.bench.cases import KINDS, Contestant, Kind, cases
from core_cli.bench.measuring import Measurement, measured
from core_cli.flags import LoadFlags
from core_cli.loading import explain, load
from core_tasks import svg

if TYPE_CHECKING:
    from core_cli.loading import Loaded

_COMPARED = ("model", "backend", "adapter_path")
# Measurements as JSON, JSON lines, CSV and Markdown: each format begins with one of our names.
_FILE = outputs.Kind(
    "a file of measurements",
    re.compile(
        rb'\[?\{"model_filename": ?"|model_filename,backend,test,|\| model \| backend \| test \|'
    ),
    private=False,
)
_STEADY = {"prefix_cache": 0}
"""A prefix cache would make later runs faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFlags(LoadFlags):
    """Flags of ``bench``."""

    compare: tuple[str, ...] = ()
    pp: int
    tg: int
    batch_size: tuple[int, ...]
    repetitions: int
    warmup: int
    only: tuple[Kind, ...] = ()
    to: str | None = None
    output: str | None = None
    plot: str | None = None


def run(flags: BenchFlags) -> None:
    """Load the models, measure them with interleaved runs, and show the results.

    Raises `OutputError` for a file that another program wrote, and `CommandFailed` if no test
    could be measured.
    """
    flags.need_model()
    _check_outputs(flags)
    sides = [flags, *(flags.with_side(side, _COMPARED) for side in flags.compare)]
    chosen = cases(flags.only or KINDS, flags.pp, flags.tg, flags.batch_size)
    with ExitStack() as stack:
        contestants = [_loaded(stack, side) for side in sides]
        _tell_apart(contestants, flags.compare)
        if flags.verbose or output.is_terminal():
            for contestant in contestants:
                name = f"{contestant.name}, {contestant.backend}"
                output.say(f"{name}: loaded in {contestant.load_seconds:.2f} s")

        measurements: list[Measurement] = []
        for group in measured(
            contestants,
            chosen,
            repetitions=flags.repetitions,
            warmup=flags.warmup,
            begun=lambda name: output.say(f"{name} ..."),
        ):
            measurements += group

    _show(measurements, flags)
    if not any(measurement.samples for measurement in measurements):
        raise exits.CommandFailed("No test could be measured; the note of each gives the reason.")


def _check_outputs(flags: BenchFlags) -> None:
    """Raise `OutputError` before the work for outputs that may not be written or coincide."""
    for name, kind in ((flags.output, _FILE), (flags.plot, svg.KIND)):
        if name:
            outputs.check(name, kind)
    named = [os.path.realpath(name) for name in (flags.output, flags.plot) if name]
    if len(set(named)) < len(named):
        raise click.UsageError(
            f"-o and --plot name the same file: {flags.output}. Choose another name for one."
        )


def _loaded(stack: ExitStack, flags: BenchFlags) -> Contestant:
    loaded: Loaded = load(flags.need_model(), flags.load_config(), None, _STEADY)
    stack.enter_context(loaded.model)
    if flags.verbose:
        explain(loaded)
    capabilities = frozenset(loaded.capabilities)
    name, backend = Path(loaded.location).name, loaded.backend.name
    return Contestant(name, loaded.model, backend, capabilities, loaded.seconds)


def _tell_apart(contestants: Sequence[Contestant], sides: Sequence[str]) -> None:
    """Rename contestants of equal name by their ``--compare`` value."""
    seen = {(contestants[0].name, contestants[0].backend)}
    for contestant, side in zip(contestants[1:], sides, strict=True):
        if (contestant.name, contestant.backend) in seen:
            contestant.name = f"{contestant.name} {side}"
        seen.add((contestant.name, contestant.backend))


def _show(measurements: Sequence[Measurement], flags: BenchFlags) -> None:
    form = flags.to or _form_of(flags.output)
    if form == "table" and not flags.output:
        rows = tables.rows(measurements)
        filled = [n for n in range(len(tables.COLUMNS)) if any(row[n] for row in rows)]
        names = [tables.COLUMNS[n].upper() for n in filled]
        output.write_table(names, [[row[n] for n in filled] for row in rows])
    else:
        data = _encoded(form, measurements)
        if flags.output:
            outputs.write(flags.output, data, _FILE)
        else:
            output.write_bytes(data)
    if flags.plot:
        outputs.write(flags.plot, tables.svg(measurements), svg.KIND)

    peaks: dict[str, int] = {}
    for measurement in measurements:
        name = f"{measurement.contestant}, {measurement.backend}"
        peaks[name] = max(peaks.get(name, 0), measurement.peak_memory)
    for name, most in peaks.items():
        if most:
            output.say(f"{name}: peak memory {output.human_size(most)}")


def _form_of(name: str | None) -> str:
    forms = {".json": "json", ".jsonl": "jsonl", ".csv": "csv", ".md": "md"}
    return forms.get(Path(name).suffix, "json") if name else "table"


def _encoded(form: str, measurements: Sequence[Measurement]) -> bytes:
    records = [measurement.to_dict() for measurement in measurements]
    if form in ("md", "table"):
        return tables.markdown(measurements).encode()
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
