"""The results as tables for people and as JSON for programs.

    python -m benchmarks.classify_parts.report FILE.json [--cpu]

prints the README's table from a report of ``classify.py --json``, with ``--cpu`` the one of CPU
times; or the tables of decoding from a report of ``decode.py --json``, in speed or in CPU times.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.classify_parts.measuring import Result, ratio

_COLUMNS = (
    "prompts/s",
    "CPU ms a row",
    "tokens/s",
    "computed/s",
    "share of rate",
    "peak GiB",
    "same labels",
)
_NOTE = (
    "tokens/s counts all prompt tokens, computed/s those that no reused prefix covers. The share "
    "is 2 x the layers' matrix weights x computed tokens a second, of the measured matrix-multiply "
    "rate. Labels are compared with the first line's where its margin is above 0.01."
)


def show(
    console: Console, results: Sequence[Result], titles: Mapping[str, str], against: Sequence[str]
) -> None:
    """Print one table for each model and workload; ``against`` are contestants to divide by."""
    for (model, workload), group in groupby(results, lambda r: (r.model, r.workload)):
        rows = list(group)
        title = f"{model}, ({workload}) {titles[workload]}, {rows[0].prompts} prompts"
        console.print(_table(title, rows, [name for name in against if _has(rows, name)]))
    console.print(_NOTE)


def show_lines(
    console: Console, skipped: Mapping[str, str], missed: Sequence[str], caption: str
) -> None:
    """Print the lines below the tables."""
    for line in (*(f"skipped: {name}: {why}" for name, why in skipped.items()),
                 *(f"missed: {problem}" for problem in missed), caption):  # fmt: skip
        console.print(line, markup=False, highlight=False)


def _has(rows: Sequence[Result], name: str) -> bool:
    return any(row.contestant == name for row in rows)


def _table(title: str, rows: Sequence[Result], against: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    table.add_column("", no_wrap=True)
    for column in (*_COLUMNS[:1], *(f"x {name}" for name in against), *_COLUMNS[1:]):
        table.add_column(column, justify="right")
    for row in rows:
        ratios = [f"{ratio(rows, row, name):.2f}" for name in against]
        table.add_row(
            row.contestant,
            f"{row.prompts_per_second:,.1f}",
            *ratios,
            "-" if row.cpu_seconds is None else f"{row.cpu_seconds / row.prompts * 1000:.1f}",
            f"{row.tokens_per_second:,.0f}",
            f"{row.computed_tokens_per_second:,.0f}",
            "-" if row.share is None else f"{row.share:.0%}",
            f"{row.peak_bytes / 2**30:.2f}",
            f"{row.agreeing}/{row.compared}",
        )
    return table


def to_json(results: Sequence[Result], about: Mapping[str, Any]) -> str:
    """Return settings and all figures."""
    return json.dumps({**about, "results": [asdict(row) for row in results]}, indent=2) + "\n"


def markdown(results: Sequence[Result], ours: str, peers: Sequence[str]) -> str:
    """Return a line for each model and workload: our speed, and the ratio to each peer's."""
    ratios_to = [f"x {peer}" for peer in peers]
    columns = ["model", "workload", "prompts", "prompts/s", *ratios_to, "share of rate"]
    rows = []
    for row in (result for result in results if result.contestant == ours):
        multiples = (ratio(results, row, peer) for peer in peers)
        ratios = ["-" if times is None else f"{times:.2f}" for times in multiples]
        share = "-" if row.share is None else f"{row.share:.0%}"
        speed = f"{row.prompts_per_second:.1f}"
        rows.append([row.model, f"({row.workload})", str(row.prompts), speed, *ratios, share])
    return _lines(columns, rows)


def cpu_markdown(results: Sequence[Result], ours: str) -> str:
    """Return a line for each contestant, with a column for each model and workload.

    A cell has the CPU time of a row in milliseconds, how many times as fast as ``ours`` that is,
    and the number of labels that are the same.
    """
    places = list(dict.fromkeys((row.model, row.workload) for row in results))
    rows = []
    for name in dict.fromkeys(row.contestant for row in results):
        cells = [name]
        for place in places:
            of = {row.contestant: row for row in results if (row.model, row.workload) == place}
            cells.append(_cpu_cell(of[name], of[ours]) if name in of else "-")
        rows.append(cells)
    return _lines(["", *(f"{model} ({workload})" for model, workload in places)], rows)


def _cpu_cell(row: Result, ours: Result) -> str:
    if not row.cpu_seconds or not ours.cpu_seconds:
        return "-"
    milliseconds = 1000 * row.cpu_seconds / row.prompts
    times = ours.cpu_seconds / row.cpu_seconds
    return f"{milliseconds:.1f} ms, {times:.2f} x, {row.agreeing} of {row.compared}"


def decode_markdown(written: Mapping[str, Any]) -> str:
    """Return a line for each contestant: tokens a second, and the ratio of our speed to it."""
    titles = {"stream": "one stream", "batch": "8 prompts"}
    shown = {name: title for name, title in titles.items() if name in written}
    columns = [""]
    for title in shown.values():
        columns += [f"{title}, tokens/s", "core is"]

    # Everything in a comparison but its ratio is a contestant's.
    first = written[next(iter(shown))]
    rows = []
    for who in (name for name in first if name != "ratio"):
        cells = [who]
        for name in shown:
            speed, ours = (written[name][one]["tokens_per_second"] for one in (who, "core"))
            cells += [f"{speed:.1f}", f"{ours / speed:.2f}"]
        rows.append(cells)
    return _lines(columns, rows)


def decode_cpu_markdown(written: Mapping[str, Any]) -> str:
    """Return a line for each contestant: CPU time of a token, and the ratio of core's to it."""
    shown = [name for name in ("stream", "batch") if name in written]
    titles = {"stream": "one stream", "batch": "eight streams together"}
    rows = [
        [who, *(_decode_cell(written[name], who) for name in shown)]
        for who in written[shown[0]]
        if who != "ratio"
    ]
    return _lines(["", *(titles[name] for name in shown)], rows)


def _decode_cell(of: Mapping[str, Any], who: str) -> str:
    own, ours = (of[name]["cpu_ms_per_token"] for name in (who, "core"))
    return f"{own:.1f} ms, {ours / own:.2f} x"


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(
        f"| {' | '.join(cells)} |\n" for cells in [columns, ["---"] * len(columns), *rows]
    )


def main() -> None:
    """Print the table of a file."""
    from benchmarks.classify_parts.contestants import OURS, PEERS

    written = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if "results" not in written:
        shown = decode_cpu_markdown if "--cpu" in sys.argv else decode_markdown
        print(shown(written), end="")
        return
    results = [Result(**row) for row in written["results"]]
    if "--cpu" in sys.argv:
        print(cpu_markdown(results, OURS), end="")
        return
    peers = [peer for peer in PEERS if any(row.contestant == peer for row in results)]
    print(markdown(results, OURS, peers), end="")


if __name__ == "__main__":
    main()
