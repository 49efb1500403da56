"""``infer-cli explain``: which part of a text moves its label."""

from __future__ import annotations

from typing import Any

import click

from core_cli import help, options


@click.command(
    cls=help.Command,
    epilog=help.examples(
        'infer-cli explain -m MODEL --labels spam,ham "Hello. You won! Click here."',
        "infer-cli explain -i mails.csv --task spam.toml 12 --by lines",
    ),
)
@click.argument("row", metavar="ROW")
@options.optional_model_option
@options.of_examples
@options.task_option
@click.option(
    "--head",
    type=options.FILE,
    help="Classify with a head, a linear classifier on hidden states, written by learn.",
)
@click.option("--labels", metavar="A,B,C", help="Comma-separated labels.")
@options.question_options
@click.option(
    "--by",
    type=click.Choice(["sentences", "lines", "words"]),
    default="sentences",
    help="Parts to leave out, one at a time. [default: sentences]",
)
@click.option("--label", help="Label to explain. [default: the most likely one]")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@options.verbose_option
@options.load_options
def explain(**given: Any) -> None:
    """Show which part of a text moves its label.

    ROW is a text or, with -i FILE, the number of a row, from 1. The text is classified as it is
    and once without each of its sentences (--by lines, --by words), in one batch. The table has
    the label's probability without each part, and how much the part raises it; the part with the
    largest effect on the log-odds comes first.
    """
    from core_cli.tasks import explaining

    explaining.run(explaining.ExplainFlags(**given))
