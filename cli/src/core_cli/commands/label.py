"""``infer-cli label``: a terminal form that makes gold rows by hand."""

from __future__ import annotations

from typing import Any

import click

from core_cli import help, options


@click.command(
    cls=help.Command,
    epilog=help.examples(
        "infer-cli label -i mails.csv --labels spam,ham -o gold.csv",
        "infer-cli label -m MODEL -i mails.csv --labels spam,ham -o gold.csv",
    ),
)
@options.optional_model_option
@options.of_examples
@click.option("--labels", metavar="A,B,C", help="Comma-separated labels.")
@options.task_option
@options.question_options
@click.option(
    *("-o", "--output"),
    type=options.OUTPUT_FILE,
    required=True,
    metavar="GOLD",
    help="File to write the labelled rows to: .csv or .jsonl. One of an earlier session is "
    "continued.",
)
@options.verbose_option
@options.load_options
def label(**given: Any) -> None:
    """Label rows by hand, those that teach most first.

    Press a label's number, or type the start of its name and Enter; u takes back the last label,
    s skips the row, q ends. Each label is written at once to GOLD, with the columns line, text and
    label, for --gold label of other commands. With a model, the rows of which it is least sure
    come first, and among them those least like the labelled ones. After each label, the accuracy
    of the model and of a cross-validated character n-gram classifier on the labelled rows is shown.
    """
    from core_cli.tasks import labelling

    labelling.run(labelling.LabelFlags(**given))
