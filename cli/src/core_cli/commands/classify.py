"""``infer-cli classify``: labels, or next tokens, for many texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from core_cli import help, options, output
from core_cli.rows import checks, input

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core_cli.flags import RowFlags
    from core_cli.loading import Loaded


@click.command(
    cls=help.Command,
    epilog=help.examples(
        'infer-cli classify -m MODEL --labels spam,ham "Win now! This mail is"',
        "infer-cli classify -m MODEL -i mails.csv --labels spam,ham -o labelled.csv",
        "infer-cli classify -i mails.csv --task spam.toml --gold label",
    ),
)
@options.of_rows
@options.labels_option
@options.labels_file_option
@options.label_prefix_option
@options.label_sentence_option
@click.option(
    "--labels-only",
    is_flag=True,
    help="Write only the label, without probabilities; faster with many long labels.",
)
@click.option(
    "--task",
    type=options.FILE,
    help="Take prompt, labels, calibration and, without -m, the model from a task file.",
)
@click.option(
    "--head",
    type=options.FILE,
    help="Classify with a head, a linear classifier on hidden states, written by learn.",
)
@click.option(
    "--min-margin",
    type=click.FloatRange(0, 1),
    help='Report "unsure" if the margin, the best probability minus the second, is below this.',
)
@click.option(
    "--gold",
    metavar="FIELD",
    help="Input field with the gold (true) label or labels; adds the accuracy to the summary.",
)
@click.option(
    "--plot",
    type=options.OUTPUT_FILE,
    metavar="FILE",
    help="Plot the results of --gold to FILE (SVG).",
)
@options.of_output
@options.sampling_options
@options.load_options
def classify(**given: Any) -> None:
    """Label texts, or predict the next token.

    The label that is most likely to follow the prompt is chosen. Rows are arguments, come from
    -i FILE (text, JSON lines, a JSON array, CSV, TSV, Parquet) or are piped to stdin. Results keep
    the input order. With -o OUT progress is saved, and --resume continues an interrupted run.
    Failed rows are reported, and the exit code is then 5.
    """
    from core_cli.flags import RowFlags, parse_labels
    from core_cli.rows import gold_labels

    flags = RowFlags(**given)
    if flags.labels_only:
        _refuse_with_labels_only(flags)
    if flags.task or flags.head:
        _classify_as(flags)
        return
    checks.refuse(flags)
    typed = parse_labels(flags.labels, flags.labels_file)
    labels = typed or gold_labels.labels_of_rows(flags)
    if flags.min_margin is not None and not labels:
        raise click.UsageError("--min-margin requires --labels.")
    if flags.plot and not flags.gold:
        raise click.UsageError("--plot requires --gold FIELD.")
    _warn(labels)
    if flags.gold and typed:
        gold_labels.warn(flags, labels, checks.template_of_rows(flags))
    input.warn_of_file(flags.prompts)
    _classify(flags, labels)


def _refuse_with_labels_only(flags: RowFlags) -> None:
    """Raise `click.UsageError` for flags that need more than the label."""
    for flag, value in (
        ("--task", flags.task),
        ("--head", flags.head),
        ("--min-margin", flags.min_margin),
    ):
        if value is not None:
            raise click.UsageError(
                f"{flag} requires label probabilities, which --labels-only "
                "does not compute. Remove one of the two."
            )
    if not (flags.labels or flags.labels_file):
        raise click.UsageError("--labels-only requires --labels.")


def _classify_as(flags: RowFlags) -> None:
    """Classify with a task or head file; a task may also name the model."""
    from dataclasses import replace

    from core_cli.jobs.run import run
    from core_cli.rows import gold_labels
    from core_cli.tasks import question as questions

    if flags.head:
        question = questions.question_of(flags)
    else:
        task = questions.task_of(flags)
        question = questions.of_task(task)
        flags = replace(flags, model=flags.model or task.model or None)
    checks.refuse(flags)
    if flags.plot and not flags.gold:
        raise click.UsageError("--plot requires --gold FIELD.")
    if flags.plot and question.mode == "many":
        raise click.UsageError(
            "--plot supports one label per row; this task is multi-label. Remove --plot."
        )
    if flags.gold:
        gold_labels.warn(flags, question.labels, many=question.mode == "many")
    run(flags, questions.work_of(question, flags.min_margin))


def _warn(labels: Sequence[str]) -> None:
    """Warn about valid but probably unintended input."""
    if len(labels) == 1:
        advice = " Separate labels with commas." if " " in labels[0] else ""
        output.warn(
            f"only one label is given ({labels[0]!r}), so it gets all the probability.{advice}"
        )


def _classify(flags: RowFlags, labels: tuple[str, ...]) -> None:
    from core.options import GenerateConfig
    from core.protocols import Capability
    from core_cli.flags import given
    from core_cli.jobs.run import RowJob, run
    from core_cli.loading import UNSUPPORTED
    from core_cli.rows.asker import answering
    from core_cli.rows.prompts import longest_label
    from core_cli.writing import answers

    joining = given(label_prefix=flags.label_prefix, label_sentence=flags.label_sentence)
    options = flags.sampling() | joining | flags.template_config()
    config = GenerateConfig(labels=labels, labels_only=flags.labels_only, **options)
    if config.labels_only:
        kind = answers.labels_alone()
    else:
        kind = answers.labelled(flags.min_margin) if labels else answers.next_tokens()
    job = RowJob(
        command="classify",
        needed=Capability.LABELS if labels else Capability.CLASSIFY,
        config=config,
        kind=kind,
        ask=lambda loaded: loaded.model.classify,
        generate=answering,
        fitted=_with_logprobs,
        room=lambda loaded: longest_label(loaded.model, labels),
        labelled=config if labels else None,
    )
    try:
        run(flags, job)
    except UNSUPPORTED:
        if not labels:
            _refuse_encoder(flags)
        raise


def _refuse_encoder(flags: RowFlags) -> None:
    """Raise `click.UsageError` if a backend loads the model, but only compares label sentences."""
    from core.models.locating import located
    from core.protocols import Capability
    from core_cli.loading import UNSUPPORTED, choose

    place, name = located(flags.need_model()), flags.load_config().backend
    try:
        choice = choose(place.path, name, Capability.LABEL_SENTENCES)
    except UNSUPPORTED:
        return
    if Capability.CLASSIFY in choice.backend.capabilities:  # a server's model may be either
        return
    raise click.UsageError(
        f"Backend {choice.backend.name!r} compares this model's texts with label sentences and "
        "predicts no token. Pass --labels, or use a language model."
    )


def _with_logprobs(loaded: Loaded, config: GenerateConfig) -> GenerateConfig:
    """Return the config, asking for the next token's log-probability if the backend offers it."""
    from dataclasses import replace

    from core.protocols import Capability

    offered = Capability.LOGPROBS in loaded.capabilities and not config.labels_only
    return replace(config, return_logprobs=True) if offered else config
