"""``infer-cli learn``: a classifier head from a few labelled texts."""

from __future__ import annotations

from typing import Any

import click

from core_cli import help, options


@click.command(
    cls=help.Command,
    epilog=help.examples("infer-cli learn -m MODEL -i mails.csv --gold label -o spam.safetensors"),
)
@options.model_option
@options.of_examples
@click.option(
    "--gold", metavar="FIELD", required=True, help="Input field with the gold (true) label."
)
@click.option(
    "--template",
    help=r"Text given to the model; {text} is filled in, \n is a newline. [default: {text}]",
)
@click.option("--template-file", type=options.FILE, help="Read the template from FILE.")
@click.option(
    *("--layer", "layers"),
    type=int,
    multiple=True,
    help="Hidden layer to try; -1 is the last. Repeatable. [default: several upper layers]",
)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(["ridge", "lda"]),
    multiple=True,
    help="Classifier to try. Repeatable. [default: both]",
)
@click.option("--early-exit", is_flag=True, help="Use a lower layer if it is as accurate.")
@click.option(
    "-o",
    "--output",
    type=options.OUTPUT_FILE,
    required=True,
    metavar="HEAD",
    help="Head file to write.",
)
@click.option("--overwrite", is_flag=True, help="Replace a HEAD that infer-cli wrote.")
@options.verbose_option
@options.load_options
def learn(**given: Any) -> None:
    """Train a classifier head from a few labelled texts.

    Four texts of each label are enough to start. Label names do not matter: a head reads the
    model's hidden state. Use it with classify --head HEAD; it works only with the model it was
    trained on.
    """
    from core_cli.tasks import learning

    learning.run(learning.LearnFlags(**given))
