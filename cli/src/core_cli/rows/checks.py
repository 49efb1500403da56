"""Checks of the flags of row commands, before any work."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from core.errors import OutputError
from core.system import outputs
from core_cli import reports
from core_tasks import svg
from core_tasks.template import TEXT, Template

if TYPE_CHECKING:
    from core_cli.flags import RowFlags


def refuse(flags: RowFlags, few_shot: str | None = None) -> None:
    """Raise `click.UsageError` for flags that cannot be combined."""
    flags.need_model()
    for pair in (
        {"--resume": flags.resume, "--overwrite": flags.overwrite},
        {"--template": flags.template, "--template-file": flags.template_file},
        {"--show-prompt": flags.show_prompt, "--dry-run": flags.dry_run},
        {"--show-prompt": flags.show_prompt, "--output": flags.output},
        {"--dry-run": flags.dry_run, "--output": flags.output},
        {"--continue-final-message": flags.continue_final_message, "--new-turn": flags.new_turn},
        {"--continue-final-message": flags.continue_final_message, "--opening": flags.opening},
    ):
        if all(pair.values()):
            raise click.UsageError(f"Give {' or '.join(pair)}, not both.")
    named = {"--text-field": flags.field, "--id-field": flags.id_field, "--gold": flags.gold}
    for flag, name in named.items():
        if name is not None and flags.form == "text":
            raise click.UsageError(f"{flag} requires fields; --format text has none.")
    if flags.as_json and flags.to not in (None, "jsonl"):
        raise click.UsageError(
            f"--json is an alias for --to jsonl and cannot be combined with --to {flags.to}."
        )
    _refuse_prompts(flags.prompts, flags.file)

    inputs = {
        "-i": flags.file,
        "--template-file": flags.template_file,
        "--labels-file": flags.labels_file,
        "--task": flags.task,
        "--head": flags.head,
        "--few-shot": few_shot,
    }
    _refuse_output(flags, inputs)
    _refuse_file("--report", flags.report, reports.FILE, {"--output": flags.output, **inputs})
    others = {"--output": flags.output, "--report": flags.report, **inputs}
    _refuse_file("--plot", flags.plot, svg.KIND, others)


def template_of(template: str | None, file: str | None, *, records: bool) -> Template | None:
    """Return the template of ``--template`` or its file.

    Without ``records``, {text} is the only field. Raises `click.UsageError` for a template without
    a field or with an unknown one.
    """
    if file is not None:
        result = Template(read_text(file))
    elif template is not None:
        result = Template.typed(template)
    else:
        return None

    if not result.fields:
        name = "--template-file" if file else "--template"
        raise click.UsageError(f"{name} must contain {{text}} or another input field in braces.")
    if not records and (other := [name for name in result.fields if name != TEXT]):
        raise click.UsageError(
            f"--template uses {{{other[0]}}}, but these prompts only have {{text}}. For literal "
            f"braces, double them: {{{{{other[0]}}}}}."
        )
    return result


def template_of_rows(flags: RowFlags) -> Template | None:
    """Return the template of a command that runs rows. Raises `click.UsageError`."""
    records = not flags.prompts and flags.form != "text"
    return template_of(flags.template, flags.template_file, records=records)


def refuse_for_requests(flags: RowFlags) -> None:
    """Raise `click.UsageError` for flags that batch requests do not support."""
    form = flags.output_form if flags.output else flags.to or "jsonl"
    if form != "jsonl":
        raise click.UsageError(
            f"Batch requests are answered in JSON lines, not {form}. Use --to jsonl."
        )
    for flag, value in (("--gold", flags.gold), ("--min-margin", flags.min_margin)):
        if value is not None:
            raise click.UsageError(
                f"{flag} cannot be used with batch requests, which have their own labels."
            )
    for flag, text in (
        ("--continue-final-message", flags.continue_final_message),
        ("--new-turn", flags.new_turn),
        ("--opening", flags.opening),
    ):
        if text is not None:
            raise click.UsageError(
                f"{flag} cannot be used with batch requests; set continue_final_message in "
                "the request."
            )


def read_text(name: str) -> str:
    """Return the text of a template file. Raises `click.UsageError` if too long or not UTF-8."""
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


def _refuse_output(flags: RowFlags, inputs: Mapping[str, str | None]) -> None:
    if flags.output is None:
        of_jobs = {
            "--resume": flags.resume,
            "--overwrite": flags.overwrite,
            "--shard": flags.shard,
        }
        for flag, value in of_jobs.items():
            if value:
                raise click.UsageError(f"{flag} requires -o OUT.")
        if flags.to == "parquet":
            raise click.UsageError("Parquet cannot be written to stdout. Pass -o OUT.")
        return
    _ = flags.output_form  # a suffix of another format is refused now
    if flags.file in (None, "-"):
        raise click.UsageError("-o requires -i FILE, because resuming re-reads the input.")
    for flag, name in inputs.items():
        if flags.output and name and _same(flags.output, name):
            raise click.UsageError(
                f"-o and {flag} name the same file: {flags.output}. Choose another -o."
            )


def _refuse_file(
    flag: str, name: str | None, kind: outputs.Kind, others: Mapping[str, str | None]
) -> None:
    """Raise `click.UsageError` for an output that cannot be written or is also another file."""
    if not name:
        return
    try:
        outputs.check(name, kind)
    except OutputError as error:
        raise click.UsageError(f"{flag} {error}") from None
    for other, path in others.items():
        if path and _same(name, path):
            raise click.UsageError(f"{flag} and {other} name the same file: {name}.")


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
