"""What is wrong with the flags that say what is asked, before any work."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from core.cli import reports, settings
from core.cli.rows.template import TEXT, Template
from core.errors import OutputError
from core.system import outputs, svg

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
    """Raise `click.UsageError` for flags that make no sense together."""
    settings.need_model(flags)
    for one, other in _ONE_OF:
        if flags.get(one) and flags.get(other):
            raise click.UsageError(f"Give {_flag(one)} or {_flag(other)}, not both.")
    for name in ("field", "id_field"):
        if flags[name] is not None and flags["form"] == "text":
            raise click.UsageError(f"{_flag(name)} names a field, which --format text has none of.")
    if flags["as_json"] and flags["to"] not in (None, "jsonl"):
        raise click.UsageError(f"--json is --to jsonl, and --to {flags['to']} is asked for.")
    _refuse_prompts(flags["prompts"], flags["file"])
    _refuse_output(flags)
    for name in ("report", "plot"):
        _refuse_file(name, flags)


def template_of(flags: Mapping[str, Any]) -> Template | None:
    """The template that was given, by itself or in a file. Raises `click.UsageError`."""
    if flags["template_file"] is not None:
        template = Template(read_text(flags["template_file"]))
    elif flags["template"] is not None:
        template = Template.typed(flags["template"])
    else:
        return None

    if not template.fields:
        name = "--template-file" if flags["template_file"] else "--template"
        raise click.UsageError(
            f"{name} must hold {{text}}, which stands for each text, or other fields in braces."
        )

    # Texts that come without a record have one field.
    records = not flags["prompts"] and flags["form"] != "text"
    if not records and (other := [name for name in template.fields if name != TEXT]):
        raise click.UsageError(
            f"--template has {{{other[0]}}}, and these prompts have no fields but {{text}}. "
            f"Braces that stand for themselves are doubled: {{{{{other[0]}}}}}."
        )
    return template


def refuse_for_requests(flags: Mapping[str, Any]) -> None:
    """Raise `click.UsageError` for flags that requests of their own have no place for."""
    from core.cli.jobs.job import form_of_output

    form = form_of_output(flags) if flags["output"] else flags["to"] or "jsonl"
    if form != "jsonl":
        raise click.UsageError(f"Requests of a batch are answered in JSON lines, not as {form}.")
    for name in ("gold", "min_margin"):
        if flags.get(name) is not None:
            raise click.UsageError(
                f"{_flag(name)} is about --labels, and each request has its own."
            )
    for name in ("continue_final_message", "new_turn", "opening"):
        if flags.get(name) is not None:
            raise click.UsageError(
                f"{_flag(name)} is not for requests of a batch, which say continue_final_message."
            )


def read_text(name: str) -> str:
    """A file that holds templates. Raises `click.UsageError` for one that is none."""
    with open(name, "rb") as stream:
        data = stream.read(2**24 + 1)
    if len(data) > 2**24:
        raise click.UsageError(f"{name} is longer than {2**24} bytes, which is no template.")
    try:
        return data.decode("utf-8-sig").removesuffix("\n").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise click.UsageError(f"{name} is not UTF-8.") from None


def _refuse_prompts(prompts: Sequence[str], file: str | None) -> None:
    if prompts and file:
        raise click.UsageError("Give prompts as arguments or with -i FILE, not both.")
    if not prompts and not file and sys.stdin.isatty():
        raise click.UsageError("No prompts. Give some as arguments, with -i FILE, or on stdin.")


def _refuse_output(flags: Mapping[str, Any]) -> None:
    if flags["output"] is None:
        for name in _OF_JOBS:
            if flags[name]:
                raise click.UsageError(f"{_flag(name)} is for a job that writes a file: -o OUT.")
        if flags["to"] == "parquet":
            raise click.UsageError("Parquet is not written to stdout. Give a file with -o OUT.")
    elif flags["file"] in (None, "-"):
        raise click.UsageError(
            "-o OUT wants its rows from a file, -i IN: a job that goes on reads them once more."
        )
    for name in _INPUTS:
        if flags["output"] and flags.get(name) and _same(flags["output"], flags[name]):
            raise click.UsageError(
                f"-o and {_flag(name)} are the same file, {flags['output']}. Give another -o."
            )


def _refuse_file(name: str, flags: Mapping[str, Any]) -> None:
    """Before the work: a file that is written after it, and cannot be, or is another one too."""
    given = flags.get(name)
    if not given:
        return
    try:
        outputs.check(given, _KINDS[name])
    except OutputError as error:
        raise click.UsageError(f"{_flag(name)} {error}") from None
    for other in ("output", "report", *_INPUTS):
        if other != name and flags.get(other) and _same(given, flags[other]):
            raise click.UsageError(f"{_flag(name)} and {_flag(other)} are the same file, {given}.")


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _flag(name: str) -> str:
    return {"file": "-i"}.get(name, "--" + name.replace("_", "-"))
