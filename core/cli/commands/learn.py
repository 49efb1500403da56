"""``infer-cli learn``: a head from a few texts with their labels, for ``classify --head``."""

from __future__ import annotations

from typing import Any

import click

from core.cli import settings
from core.cli.rows import flags


@click.command()
@settings.model_option
@flags.of_examples
@click.option("--gold", metavar="FIELD", required=True, help="The field with the right label.")
@click.option("--template", help=r'What the model reads: "...{text}...", \n; default: the text.')
@click.option("--template-file", type=flags.FILE, help="A file that holds it.")
@click.option(
    *("--layer", "layers"),
    type=int,
    multiple=True,
    help="A layer to try, -1 is the last; default: several of the upper half.",
)
@click.option("--kind", "kinds", type=click.Choice(["ridge", "lda"]), multiple=True)
@click.option("--early-exit", is_flag=True, help="A lower layer, where that costs nothing.")
@click.option("-o", "--output", type=flags.OUTPUT_FILE, required=True, metavar="HEAD")
@click.option("--overwrite", is_flag=True, help="Replace a HEAD that was written before.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what was tried.")
@settings.load_options
def learn(**given: Any) -> None:
    """Learn labels from a few texts, and write a head.

    Four texts of each label are enough to begin with, and what the labels are called does not
    matter: a head reads the model's hidden state, and no label's name. classify --head HEAD asks
    it. It belongs to the model that it was learned on.
    """
    from core.cli.tasks import learning

    learning.run(given)
