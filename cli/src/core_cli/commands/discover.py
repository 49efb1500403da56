"""``infer-cli discover``: the local models, and the backends that can load them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from core_cli import help, output

if TYPE_CHECKING:
    from core.choosing import Verdict
    from core.types import DiscoveredModel

_COLUMNS = ("NAME", "SOURCE", "TYPE", "QUANT", "SIZE", "MODIFIED", "BACKEND")
_ORDERS = {
    "name": lambda model: (model.name.casefold(), model.path),
    "size": lambda model: (-model.size_bytes, model.path),
    "modified": lambda model: (-model.modified, model.path),
}


@click.command(cls=help.Command, epilog=help.examples("infer-cli discover ~/models --sort size"))
@click.argument("directory", required=False, metavar="[DIR]")
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    default=1,
    help="Directory levels to search below DIR. [default: 1]",
)
@click.option(
    "--sort",
    type=click.Choice(list(_ORDERS)),
    help="Sort by name, size (largest first) or modification time (newest first).",
)
@click.option("--loadable", is_flag=True, help="List only models that a backend here can load.")
@click.option("--paths", "-v", is_flag=True, help="Also show paths.")
@click.option("--quiet", "-q", is_flag=True, help="Print only the names (or paths) to pass to -m.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def discover(
    directory: str | None,
    depth: int,
    sort: str | None,
    loadable: bool,
    paths: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """List local models and the backends that can load them.

    Searches DIR, or the usual model folders. Broken and incomplete models are listed with the
    reason. Known stores (Hugging Face, LM Studio, Ollama) are searched at their own depth.
    """
    from core import api

    models = api.discover(directory, depth)
    if sort is not None:
        models.sort(key=_ORDERS[sort])
    rows = _judged(models, ask=loadable or as_json or not quiet)
    if loadable:
        rows = [(model, verdict) for model, verdict in rows if verdict and verdict.backends]

    if as_json:
        output.write_json([record(model, verdict) for model, verdict in rows])
        return
    if quiet:
        output.write_lines([_handle(model, paths)] for model, _ in rows)
    else:
        columns = (*_COLUMNS, "PATH") if paths else _COLUMNS
        cells = [_cells(*row, directory)[: len(columns)] for row in rows]
        output.write_table(columns, cells, whole=paths, fold_last=True)
    output.say(_summary(rows, directory, depth))


def record(model: DiscoveredModel, verdict: Verdict | None) -> dict[str, Any]:
    """Return a model for JSON: all facts, and the backends that can load it."""
    backends, why = (verdict.backends, verdict.reason) if verdict else ((), "")
    return {
        "name": model.name,
        **asdict(model),
        "quantisation": model.quantisation or None,
        "modified": modified(model.modified),
        "problem": model.problem or (verdict.why_nobody if verdict else "") or None,
        "backend": next(iter(backends), None),
        "backends": backends,
        "reason": why or None,
    }


def modified(seconds: float) -> str | None:
    """Return a time in ISO 8601, in UTC.

    None for an unknown time and for one out of range.
    """
    if not seconds:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return None


def _judged(
    models: Sequence[DiscoveredModel], ask: bool
) -> list[tuple[DiscoveredModel, Verdict | None]]:
    from core.registry import REGISTRY

    if not ask:
        return [(model, None) for model in models]
    return list(zip(models, REGISTRY.judge(models), strict=True))


def _cells(
    model: DiscoveredModel, verdict: Verdict | None, directory: str | None
) -> tuple[str, ...]:
    return (
        _name(model, directory),
        f"{model.source}: {', '.join(model.parts)}" if model.parts else model.source,
        model.model_type or "-",
        model.quantisation or "-",
        output.human_size(model.size_bytes),
        (modified(model.modified) or "-")[:10],
        _backends(verdict),
        shortened(model.path),
    )


def _name(model: DiscoveredModel, directory: str | None) -> str:
    """Return a model's name; outside of a store, its path below the given directory."""
    if model.names or directory is None:
        return model.name
    base = os.path.abspath(os.path.expanduser(directory))
    below = os.path.relpath(model.path, base)
    return model.name if below == "." or below.startswith("..") else below


def _handle(model: DiscoveredModel, paths: bool) -> str:
    is_named = model.adapters or (model.names and not paths)
    return model.name if is_named else model.path


def _backends(verdict: Verdict | None) -> str:
    if verdict is None:
        return "-"
    return ", ".join(verdict.backends) or f"none: {verdict.why_nobody}"


def shortened(path: str) -> str:
    """Return a path, with ``~`` for the home directory."""
    home = os.path.expanduser("~")
    inside = path.startswith(home.rstrip(os.sep) + os.sep)
    return f"~{path[len(home.rstrip(os.sep)) :]}" if inside else path


def _summary(
    rows: Sequence[tuple[DiscoveredModel, Verdict | None]], directory: str | None, depth: int
) -> str:
    from core.models.files import HOW_TO_GET

    text = f"{output.counted(len(rows), 'model')} found"
    unused = sum(verdict is not None and not verdict.backends for _, verdict in rows)
    if unused:
        text += f", {unused} of them cannot be loaded here"
        text += " (infer-cli info MODEL says why in full)"
    if rows:
        return f"{text}."
    if directory is not None:
        text += f" in {directory} and {output.counted(depth, 'level')} below it"
        return f"{text}; --depth {depth + 2} looks deeper. {HOW_TO_GET}"
    return f"{text}. {HOW_TO_GET}"
