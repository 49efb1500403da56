"""``eval --compare A B``: compare two evaluations, saved or run now."""

from __future__ import annotations

import json
import tempfile
from codecs import BOM_UTF8
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from core_cli import exits, output, reports
from core_cli.evaluation.asker import share
from core_cli.evaluation.saved import records, speed_of

if TYPE_CHECKING:
    from core_cli.evaluation.items import EvalFlags
    from core_tasks.evaluation.comparison import Comparison, Flip

_CHANGED = ("model", "backend", "template", "adapter_path", "system")
_SHOWN = 20


def compare(flags: EvalFlags) -> None:
    """Compare two evaluations and print their agreement.

    Each of ``--compare`` is a file that ``eval -o`` wrote, a model, or NAME=VALUE, a flag
    to override. Raises `CommandFailed` below ``--fail-under``.
    """
    from core_tasks.evaluation.comparison import compare as compared

    sides = flags.compare
    assert sides is not None
    reports.check(flags.report)
    with tempfile.TemporaryDirectory(prefix="infer-cli-") as directory:
        files = [
            _written(side, flags, Path(directory) / f"{number}.jsonl")
            for number, side in enumerate(sides)
        ]
        found = compared(*map(records, files))
        speeds = [speed_of(file) for file in files]
    told = {
        "compared": [*sides],
        **found.to_dict(),
        "speed": dict(zip(("first", "second"), speeds, strict=True)),
    }
    if flags.report:
        reports.save(flags.report, told)
    if flags.as_json:
        output.write_bytes(output.json_lines([told]))
    else:
        _tell(found, sides, speeds)
    _check(found, flags.fail_under)


def _written(side: str, flags: EvalFlags, target: Path) -> str:
    """Return the file of an evaluation; run the evaluation if it does not exist."""
    from core_cli.evaluation.running import evaluate

    if Path(side).is_file() and _is_written(side):
        return side
    changed = flags.with_side(side, _CHANGED)
    changed = replace(changed, output=str(target), report=None, fail_under=None)
    if changed.template != flags.template:
        changed = replace(changed, template_file=None)
    changed.need_model()
    if changed.file is None:
        raise click.UsageError(
            f"{side} is not a saved evaluation. To evaluate it now, pass the items with -i."
        )
    output.say(f"{side}:")
    try:
        evaluate(replace(changed, to=None, as_json=False))
    except exits.CommandFailed as failed:
        if failed.exit_code != exits.ROWS_FAILED:
            raise
        output.warn(str(failed))
    return str(target)


def _is_written(name: str) -> bool:
    """Return whether a file is a saved evaluation."""
    with open(name, "rb") as stream:
        line = stream.readline(2**24).removeprefix(BOM_UTF8).strip().rstrip(b",")
        line = line if line != b"[" else stream.readline(2**24).strip().rstrip(b",")
    try:
        return "prediction" in json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return False


def _tell(found: Comparison, sides: Any, speeds: Any) -> None:
    lines = [
        ("", *sides),
        *_figures(found),
        *_rates(speeds),
    ]
    output.write_table(lines[0], lines[1:])

    # Agreement, and the significance of the difference.
    agreement = "-" if found.agreement is None else f"{100 * found.agreement:.1f} %"
    told = [
        f"same answer: {found.same} of {output.counted(found.items, 'item')}, {agreement}",
        f"correct only in the first: {found.first_alone}, only in the second: "
        f"{found.second_alone}; McNemar p = {found.p_value:.3g}",
    ]
    if found.failed:
        told.append(f"{output.counted(found.failed, 'item')} failed and skipped")
    if found.largest_difference is not None:
        told.append(
            f"largest probability difference: {found.largest_difference:.3g}, {found.largest_at}"
        )
    for line in told:
        output.say(line)

    # Items with different answers, the most confident first.
    for flip in found.flips[:_SHOWN]:
        output.say(f"  {_flip(flip)}")
    if len(found.flips) > _SHOWN:
        output.say(f"  and {len(found.flips) - _SHOWN} more; --json has all")


def _figures(found: Comparison) -> list[tuple[str, str, str]]:
    rows = []
    for key, words in (("accuracy", "accuracy"), ("accuracy_normalised", "by length")):
        if key in found.first and key in found.second:
            told = (share(each, key, "")[2:] for each in (found.first, found.second))
            rows.append((words, *told))
    for key, words in (("calibration_error", "calibration error"), ("brier", "Brier")):
        told = (_figure(each[key]) for each in (found.first, found.second))
        rows.append((words, *told))
    return rows  # type: ignore[return-value]


def _rates(speeds: Any) -> list[tuple[str, str, str]]:
    names = (("items_per_second", "items/s"), ("generated_tokens_per_second", "tokens/s"))
    rows = [(words, *(_rate(speed.get(key)) for speed in speeds)) for key, words in names]
    return [row for row in rows if any(cell != "-" for cell in row[1:])]  # type: ignore[misc]


def _flip(flip: Flip) -> str:
    told = []
    for each in (flip.first, flip.second):
        sure = each.get("sureness")
        told.append(
            f"{each['prediction']!r}{'' if sure is None else f' ({sure:.3f})'}"
            f"{', correct' if each['right'] else ''}"
        )
    return f"{flip.name}, gold {flip.gold!r}: {' | '.join(told)}"


def _check(found: Comparison, least: float | None) -> None:
    if least is not None and (found.agreement is None or found.agreement < least):
        agreement = 0.0 if found.agreement is None else found.agreement
        raise exits.CommandFailed(
            f"Agreement {100 * agreement:.1f} % is below --fail-under {100 * least:g} %."
        )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
