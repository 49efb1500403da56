"""What is wrong with the flags that say what is asked, before any work."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from core.cli import settings

_TABLES = (".csv", ".tsv")


def refuse(flags: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` for flags that make no sense together."""
    settings.need_model(flags)
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
