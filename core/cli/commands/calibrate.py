"""``infer-cli calibrate``: a task file whose probabilities hold, fitted to texts."""

from __future__ import annotations

from typing import Any

import click

from core.cli import settings
from core.cli.rows import flags

METHODS = ("batch", "content-free", "pmi", "temperature", "isotonic")


@click.command()
@settings.model_option
@flags.of_examples
@click.option("--gold", metavar="FIELD", help="The field with the right label.")
@click.option("--task", type=flags.FILE, help="A task file to begin with, instead of these:")
@click.option("--template", help=r'The prompt: "...{text}...", \n.')
@click.option("--template-file", type=flags.FILE, help="A file that holds it.")
@click.option("--labels", metavar="A,B,C", help="The labels to choose from.")
@click.option("--labels-file", type=flags.FILE, help="The labels, one a line.")
@click.option("--label-prefix", help="Text before a label. [default: a space, if it fits]")
@click.option(
    "--method",
    "methods",
    type=click.Choice(METHODS),
    multiple=True,
    help="Of priors one, and one that needs --gold; default: batch, with --gold temperature too.",
)
@click.option("--strength", type=click.FloatRange(0, 2), help="Of a prior; see the docs.")
@click.option(
    "--error-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Accept labels of which, with 95 % confidence, no larger share is wrong.",
)
@click.option("-o", "--output", type=flags.OUTPUT_FILE, required=True, metavar="TASK")
@click.option("--overwrite", is_flag=True, help="Replace a TASK that was written before.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what was chosen, and why.")
@settings.load_options
def calibrate(**given: Any) -> None:
    """Fit a task's probabilities, and write it as a task file.

    A raw probability depends more on the prompt's words than on the text. Without labels a prior
    is taken off (batch, content-free, pmi), with the right ones of some hundred rows (--gold) what
    is left is fitted (temperature, isotonic). classify --task TASK asks as the file says.
    """
    from core.cli.tasks import calibrating

    calibrating.run(given)
