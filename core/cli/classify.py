"""``infer-cli classify``: which of these labels, or which next token, for many texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from core.cli import checks, exits, output, settings

if TYPE_CHECKING:
    from core.cli.inputs import Row
    from core.cli.loading import Loaded
    from core.cli.prompts import PromptMaker
    from core.options import GenerateConfig

_FILE = click.Path(exists=True, dir_okay=False, readable=True)
_FILE_OR_STDIN = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True)


@click.command()
@click.argument("prompts", nargs=-1, metavar="[PROMPT]...")
@click.option(
    "-m", "--model", envvar="INFER_MODEL", metavar="PATH", help="Or set INFER_MODEL.  [required]"
)
@click.option("-i", "--input", "file", type=_FILE_OR_STDIN, help="Prompts; - is stdin.")
@click.option("--format", "form", type=click.Choice(["auto", "text", "jsonl"]), default="auto")
@click.option("--field", help="The JSONL field that holds the text.")
@click.option("--labels", metavar="A,B,C", help="The labels to choose from.")
@click.option("--labels-file", type=_FILE, help="The labels, one a line.")
@click.option("--label-prefix", help="What stands before a label; default: a space.")
@click.option("--template", help='The prompt around each text: "...{text}...".')
@click.option("--chat", is_flag=True, help="Use the model's chat template.")
@click.option("-s", "--system", help="A system message; implies --chat.")
@settings.sampling_options
@settings.load_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what was chosen, and why.")
def classify(**flags: Any) -> None:
    """Choose a label, or the next token, for texts.

    A label is chosen by how likely it is to follow the prompt. Prompts are arguments, lines of
    -i FILE, or lines piped to stdin (text or JSONL). Results come in input order; rows that
    fail are reported, and the exit code is then 5.
    """
    checks.refuse(flags)
    labels = settings.parse_labels(flags["labels"], flags["labels_file"])
    checks.warn(flags["prompts"], labels)
    with _rows(flags) as rows:
        _run(flags, rows, labels)


@contextmanager
def _rows(flags: dict[str, Any]) -> Iterator[Iterator[Row]]:
    from core.cli.inputs import rows_of_arguments, rows_of_stream

    if flags["prompts"] and flags["prompts"] != ("-",):
        yield rows_of_arguments(flags["prompts"])
        return
    name = flags["file"] or "-"
    with click.open_file(name, "rb") as stream:
        binary: IO[bytes] = stream
        yield rows_of_stream(binary, name, flags["form"], flags["field"])


def _run(flags: dict[str, Any], rows: Iterator[Row], labels: tuple[str, ...]) -> None:
    from dataclasses import replace

    from core.cli.loading import load
    from core.options import GenerateConfig, LoadConfig
    from core.protocols import Capability

    options = settings.given(flags, (*settings.SAMPLING, "label_prefix"))
    config = GenerateConfig(labels=labels, **options)
    load_config = LoadConfig(
        backend=flags["backend"],
        context_len=flags["context_len"],
        options=settings.parse_pairs(flags["pairs"]),
    )
    loaded = load(flags["model"], load_config, Capability.CLASSIFY)
    with loaded.model:
        if flags["verbose"]:
            _explain(loaded)
        if flags["as_json"] and Capability.LOGPROBS in loaded.backend.capabilities:
            config = replace(config, return_logprobs=True)
        _classify(flags, loaded, rows, config)


def _classify(
    flags: dict[str, Any], loaded: Loaded, rows: Iterator[Row], config: GenerateConfig
) -> None:
    from core.cli import results
    from core.cli.bulk import classify_blocks
    from core.cli.progress import Progress

    failures = results.Failures(explained=not flags["as_json"])
    maker = _prompt_maker(flags, loaded)
    with Progress("row", flags["verbose"]) as progress:
        for outcomes in classify_blocks(loaded.model, maker, rows, config):
            progress.clear()
            results.write(outcomes, as_json=flags["as_json"], with_labels=bool(config.labels))
            failures.add(outcomes)
            progress.add(len(outcomes))
        progress.clear()
        failures.end()
    if not progress.done:
        output.warn(f"no prompts in {_source(flags)}")
    if failures.count:
        message = f"{failures.count} of {output.counted(progress.done, 'row')} failed."
        raise exits.CommandFailed(message, exits.ROWS_FAILED)


def _source(flags: dict[str, Any]) -> str:
    return "stdin" if flags["file"] in (None, "-") else str(flags["file"])


def _prompt_maker(flags: dict[str, Any], loaded: Loaded) -> PromptMaker:
    from core.cli.prompts import PromptMaker

    system = flags["system"]
    chat = flags["chat"] or system is not None
    maker = PromptMaker(loaded.model, loaded.backend.name, flags["template"], chat, system)
    maker.check()
    return maker


def _explain(loaded: Loaded) -> None:
    for choice in loaded.choices():
        output.say(f"{choice.name}: {choice.value} ({choice.reason})")
    output.say(f"loaded in {loaded.seconds:.2f} s")
