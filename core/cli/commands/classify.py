"""``infer-cli classify``: which of these labels, or which next token, for many texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from core.cli import output, settings
from core.cli.rows import asking

if TYPE_CHECKING:
    from core.cli.rows.inputs import Row


@click.command()
@asking.prompt_options
@click.option("--labels", metavar="A,B,C", help="The labels to choose from.")
@click.option("--labels-file", type=asking.FILE, help="The labels, one a line.")
@click.option("--label-prefix", help="What stands before a label; default: a space.")
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
    with asking.rows_of(flags) as rows:
        labels = settings.parse_labels(flags["labels"], flags["labels_file"])
        _warn(labels)
        asking.warn_of_file(flags["prompts"])
        _classify(flags, rows, labels)


def _warn(labels: Sequence[str]) -> None:
    """Say on stderr what can be done as asked, and was hardly meant."""
    if len(labels) == 1:
        advice = " Commas stand between labels." if " " in labels[0] else ""
        output.warn(
            f"{labels[0]!r} is the only label, and one label gets all the probability.{advice}"
        )


def _classify(flags: dict[str, Any], rows: Iterator[Row], labels: tuple[str, ...]) -> None:
    from dataclasses import replace

    from core.cli.loading import explain, load
    from core.cli.rows.bulk import Question
    from core.cli.rows.results import LABELS, TOKENS
    from core.options import GenerateConfig
    from core.protocols import Capability
    from core.types import ClassifyResult

    options = settings.given(flags, (*settings.SAMPLING, "label_prefix"))
    config = GenerateConfig(labels=labels, **options)
    loaded = load(flags["model"], settings.load_config(flags), Capability.CLASSIFY)
    with loaded.model as model:
        if flags["verbose"]:
            explain(loaded)
        if flags["as_json"] and Capability.LOGPROBS in loaded.backend.capabilities:
            config = replace(config, return_logprobs=True)
        question = Question(model.classify, lambda error: ClassifyResult(error=error))
        asking.write_answers(flags, loaded, rows, config, question, LABELS if labels else TOKENS)
