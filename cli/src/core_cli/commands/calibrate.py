"""``infer-cli calibrate``: a task file with calibrated probabilities."""

from __future__ import annotations

from typing import Any

import click

from core_cli import help, options

METHODS = ("batch", "content-free", "mean", "pmi", "temperature", "isotonic")


@click.command(
    cls=help.Command,
    epilog=help.examples(
        "infer-cli calibrate -m MODEL -i mails.csv --gold label \\",
        '  --template "{text} This mail is" -o spam.toml',
    ),
)
@options.optional_model_option
@options.of_examples
@options.gold_option
@click.option(
    "--task", type=options.FILE, help="Start from a task file, instead of --template and --labels."
)
@options.labels_option
@options.question_options
@click.option(
    "--method",
    "methods",
    type=click.Choice(METHODS),
    multiple=True,
    help="Calibration method: one prior (content-free, batch, mean, pmi) and, with --gold, one fit "
    "(temperature, isotonic). [default: content-free, of an encoder mean; with --gold also "
    "temperature]",
)
@click.option(
    "--strength",
    type=click.FloatRange(0, 2),
    help="Weight of the prior. [default: 0.75 for batch, 0.6 for content-free, 1 for mean and pmi]",
)
@click.option(
    "--error-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Target error rate of the accepted labels, at 95% confidence. Needs --gold.",
)
@click.option(
    "-o",
    "--output",
    type=options.OUTPUT_FILE,
    required=True,
    metavar="TASK",
    help="Task file to write.",
)
@click.option("--overwrite", is_flag=True, help="Replace a TASK that infer-cli wrote.")
@options.verbose_option
@options.load_options
def calibrate(**given: Any) -> None:
    """Calibrate label probabilities and save them as a task file.

    Raw probabilities depend heavily on the prompt's wording. Without gold labels, a prior is
    subtracted (content-free, batch, mean, pmi). With gold labels for a few hundred rows (--gold), a
    temperature or an isotonic map is fitted too. Use the file with classify --task TASK.
    """
    from core_cli.tasks import calibrating

    calibrating.run(calibrating.CalibrateFlags(**given))
