"""``infer-cli classify``: which of these labels, or which next token, for many texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from core.cli import output, settings
from core.cli.rows import asking, checks, flags

if TYPE_CHECKING:
    from core.cli.loading import Loaded
    from core.options import GenerateConfig


@click.command()
@flags.of_rows
@click.option("--labels", metavar="A,B,C", help="The labels to choose from.")
@click.option("--labels-file", type=flags.FILE, help="The labels, one a line.")
@click.option("--label-prefix", help="Text before a label. [default: a space, if it fits]")
@click.option(
    "--labels-only", is_flag=True, help="Write the label alone; many long labels take less time."
)
@click.option("--task", type=flags.FILE, help="A task file, which says all that is asked.")
@click.option("--head", type=flags.FILE, help="A head file, which learn has written.")
@click.option("--min-margin", type=click.FloatRange(0, 1), help='Below it the label is "unsure".')
@click.option(
    "--gold", metavar="FIELD", help="The field with the right label, or labels: how many agree."
)
@click.option("--plot", type=flags.OUTPUT_FILE, metavar="FILE", help="An SVG of that.")
@flags.of_output
@settings.sampling_options
@settings.load_options
def classify(**given: Any) -> None:
    """Choose a label, or the next token, for texts.

    A label is chosen by how likely it is to follow the prompt. Rows are arguments, come from
    -i FILE (text, JSON lines, a JSON array, CSV, TSV, Parquet) or are piped to stdin. Answers come
    in input order, on stdout or as a job in -o OUT, which --resume goes on with after any end.
    Rows that fail are reported, and the exit code is then 5.
    """
    if given["labels_only"]:
        _refuse_with_labels_only(given)
    if given["task"] or given["head"]:
        _classify_as(given)
        return
    checks.refuse(given)
    labels = settings.parse_labels(given["labels"], given["labels_file"])
    if given["min_margin"] is not None and not labels:
        raise click.UsageError("--min-margin is about labels: give --labels.")
    if given["gold"] and not labels:
        raise click.UsageError("--gold compares labels: give --labels.")
    if given["plot"] and not given["gold"]:
        raise click.UsageError("--plot draws what --gold compares: give both.")
    _warn(labels)
    asking.warn_of_file(given["prompts"])
    _classify(given, labels)


def _refuse_with_labels_only(given: dict[str, Any]) -> None:
    """Raise `click.UsageError` for what needs more than the label."""
    for name in ("task", "head", "min_margin"):
        if given[name] is not None:
            raise click.UsageError(
                f"--{name.replace('_', '-')} needs the labels' probabilities, and --labels-only "
                "computes none. Leave one of them out."
            )
    if not (given["labels"] or given["labels_file"]):
        raise click.UsageError("--labels-only is about labels. Give --labels.")


def _classify_as(given: dict[str, Any]) -> None:
    """Ask as a task's or a head's file says; a task may name the model as well."""
    from core.cli.jobs.run import run
    from core.cli.tasks import asking as files
    from core.cli.tasks import heads

    if given["head"]:
        question = heads.question_of(given)
    else:
        task = files.task_of(given)
        question = files.of_task(task)
        given["model"] = given["model"] or task.model or None
    checks.refuse(given)
    if given["plot"] and not given["gold"]:
        raise click.UsageError("--plot draws what --gold compares: give both.")
    if given["plot"] and question.mode == "many":
        raise click.UsageError("--plot draws one label a row, and the task finds many.")
    run(given, files.work_of(question, given["min_margin"]))


def _warn(labels: Sequence[str]) -> None:
    """Say on stderr what can be done as asked, and was hardly meant."""
    if len(labels) == 1:
        advice = " Commas stand between labels." if " " in labels[0] else ""
        output.warn(
            f"{labels[0]!r} is the only label, and one label gets all the probability.{advice}"
        )


def _classify(given: dict[str, Any], labels: tuple[str, ...]) -> None:
    from core.cli.commands.generate import answering
    from core.cli.jobs.run import Task, run
    from core.cli.writing import answers
    from core.options import GenerateConfig
    from core.protocols import Capability

    options = settings.given(given, (*settings.SAMPLING, "label_prefix"))
    options |= settings.template_config(given)
    config = GenerateConfig(labels=labels, labels_only=given["labels_only"], **options)
    if config.labels_only:
        kind = answers.labels_alone()
    else:
        kind = answers.labelled(given["min_margin"]) if labels else answers.next_tokens()
    run(
        given,
        Task(
            command="classify",
            needed=Capability.CLASSIFY,
            config=config,
            kind=kind,
            ask=lambda loaded: loaded.model.classify,
            generate=answering,
            fitted=_with_logprobs,
            room=lambda loaded: _longest(loaded, labels),
            labelled=config if labels else None,
        ),
    )


def _with_logprobs(loaded: Loaded, config: GenerateConfig) -> GenerateConfig:
    """The next token's log-probability, from backends that give it, where a token is wanted."""
    from dataclasses import replace

    from core.protocols import Capability

    offered = Capability.LOGPROBS in loaded.capabilities and not config.labels_only
    return replace(config, return_logprobs=True) if offered else config


def _longest(loaded: Loaded, labels: Sequence[str]) -> int:
    """Tokens that a prompt leaves to the longest label, with some for what joins them."""
    from core.extensions import Tokenizing

    model = loaded.model
    sizes = [len(model.encode(label)) for label in labels] if isinstance(model, Tokenizing) else []
    return max(sizes, default=1) + 2
