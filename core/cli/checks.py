"""What is wrong with the flags of ``classify``, and what merely looks wrong, before any work."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from core.cli import output

_TABLES = (".csv", ".tsv")


def refuse(flags: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` for flags that make no sense together."""
    if flags["model"] is None:
        raise click.UsageError(
            "Missing option '-m' / '--model'. Give a model's path with it, or set INFER_MODEL; "
            "infer-cli discover lists models."
        )
    if flags["template"] is not None and "{text}" not in flags["template"]:
        raise click.UsageError("--template must hold {text}, which stands for each text.")
    if flags["field"] is not None and flags["form"] == "text":
        raise click.UsageError("--field names a field of JSONL, which --format text is not.")
    _refuse_prompts(flags["prompts"], flags["file"], flags["form"])


def _refuse_prompts(prompts: Sequence[str], file: str | None, form: str) -> None:
    if prompts and file:
        raise click.UsageError("Give prompts as arguments or with -i FILE, not both.")
    if not prompts and not file and sys.stdin.isatty():
        raise click.UsageError("No prompts. Give some as arguments, with -i FILE, or on stdin.")
    if file and file.lower().endswith(_TABLES) and form == "auto":
        raise click.UsageError(
            f"{file}: CSV is not read. Make JSONL of it, with "
            '{"text": "..."} on each line, or take each line as it is with --format text.'
        )


def warn(prompts: Sequence[str], labels: Sequence[str]) -> None:
    """Say on stderr what can be done as asked, and was hardly meant."""
    if len(labels) == 1:
        advice = " Commas stand between labels." if " " in labels[0] else ""
        output.warn(
            f"{labels[0]!r} is the only label, and one label gets all the probability.{advice}"
        )
    if len(prompts) == 1 and os.path.isfile(prompts[0]):
        name = prompts[0]
        output.warn(f"{name} is read as a prompt. To read the file of that name: -i {name}")
