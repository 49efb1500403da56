"""Checks of the flags of row commands, before any work."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from core.errors import OutputError
from core.system import outputs
from core_cli import reports, settings
from core_cli.reading import form_of_output
from core_cli.rows.template import TEXT, Template
from core_tasks import svg

_OF_JOBS = ("resume", "overwrite", "shard")
_INPUTS = ("file", "template_file", "labels_file", "task", "head", "few_shot", "saved")
_KINDS = {"report": reports.FILE, "plot": svg.KIND}
_ONE_OF = (
    ("resume", "overwrite"),
    ("template", "template_file"),
    ("show_prompt", "dry_run"),
    ("show_prompt", "output"),
    ("dry_run", "output"),
    ("continue_final_message", "new_turn"),
    ("continue_final_message", "opening"),
)


def refuse(flags: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` for flags that cannot be combined."""
    settings.need_model(flags)
    for one, other in _ONE_OF:
        if flags.get(one) and flags.get(other):
            raise click.UsageError(f"Give {_flag(one)} or {_flag(other)}, not both.")
    for name in ("field", "id_field"):
        if flags[name] is not None and flags["form"] == "text":
            raise click.UsageError(f"{_flag(name)} requires fields; --format text has none.")
    if flags["as_json"] and flags["to"] not in (None, "jsonl"):
        raise click.UsageError(
            f"--json is an alias for --to jsonl and cannot be combined with --to {flags['to']}."
        )
    _refuse_prompts(flags["prompts"], flags["file"])
    _refuse_output(flags)
    for name in ("report", "plot"):
        _refuse_file(name, flags)


def template_of(flags: Mapping[str, Any]) -> Template | None:
    """Return the template of ``--template`` or its file. Raises `click.UsageError`."""
    if flags["template_file"] is not None:
        template = Template(read_text(flags["template_file"]))
    elif flags["template"] is not None:
        template = Template.typed(flags["template"])
    else:
        return None

    if not template.fields:
        name = "--template-file" if flags["template_file"] else "--template"
        raise click.UsageError(f"{name} must contain {{text}} or another input field in braces.")

    # Texts without a record have one field.
    records = not flags["prompts"] and flags["form"] != "text"
    if not records and (other := [name for name in template.fields if name != TEXT]):
        raise click.UsageError(
            f"--template uses {{{other[0]}}}, but these prompts only have {{text}}. For literal "
            f"braces, double them: {{{{{other[0]}}}}}."
        )
    return template


def refuse_for_requests(flags: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` for flags that batch requests do not support."""
    form = form_of_output(flags) if flags["output"] else flags["to"] or "jsonl"
    if form != "jsonl":
        raise click.UsageError(
            f"Batch requests are answered in JSON lines, not {form}. Use --to jsonl."
        )
    for name in ("gold", "min_margin"):
        if flags.get(name) is not None:
            raise click.UsageError(
                f"{_flag(name)} cannot be used with batch requests, which have their own labels."
            )
    for name in ("continue_final_message", "new_turn", "opening"):
        if flags.get(name) is not None:
            raise click.UsageError(
                f"{_flag(name)} cannot be used with batch requests; set continue_final_message in "
                "the request."
            )


def read_text(name: str) -> str:
    """Return the text of a template file. Raises `click.UsageError` if it is not one."""
    with open(name, "rb") as stream:
        data = stream.read(2**24 + 1)
    if len(data) > 2**24:
        raise click.UsageError(f"{name} is not a template file: it is longer than {2**24} bytes.")
    try:
        return data.decode("utf-8-sig").removesuffix("\n").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise click.UsageError(f"{name} is not UTF-8.") from None


def _refuse_prompts(prompts: Sequence[str], file: str | None) -> None:
    if prompts and file:
        raise click.UsageError("Give prompts as arguments or with -i FILE, not both.")
    if not prompts and not file and sys.stdin.isatty():
        raise click.UsageError("No prompts. Pass them as arguments, with -i FILE, or on stdin.")


def _refuse_output(flags: Mapping[str, Any]) -> None:
    if flags["output"] is None:
        for name in _OF_JOBS:
            if flags[name]:
                raise click.UsageError(f"{_flag(name)} requires -o OUT.")
        if flags["to"] == "parquet":
            raise click.UsageError("Parquet cannot be written to stdout. Pass -o OUT.")
    elif flags["file"] in (None, "-"):
        raise click.UsageError("-o requires -i FILE, because resuming re-reads the input.")
    for name in _INPUTS:
        if flags["output"] and flags.get(name) and _same(flags["output"], flags[name]):
            raise click.UsageError(
                f"-o and {_flag(name)} name the same file: {flags['output']}. Choose another -o."
            )


def _refuse_file(name: str, flags: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` for an output that cannot be written or is another file too."""
    given = flags.get(name)
    if not given:
        return
    try:
        outputs.check(given, _KINDS[name])
    except OutputError as error:
        raise click.UsageError(f"{_flag(name)} {error}") from None
    for other in ("output", "report", *_INPUTS):
        if other != name and flags.get(other) and _same(given, flags[other]):
            raise click.UsageError(f"{_flag(name)} and {_flag(other)} name the same file: {given}.")


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _flag(name: str) -> str:
    return {"file": "-i"}.get(name, "--" + name.replace("_", "-"))
