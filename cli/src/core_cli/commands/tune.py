"""``infer-cli tune``: the best prompt, words and level, as a table and a task file."""

from __future__ import annotations

from typing import Any

import click

from core_cli import help, options


@click.command(
    cls=help.Command,
    epilog=help.examples(
        "infer-cli tune -m MODEL -i mails.csv --gold label -o spam.toml \\",
        '  --template "{text} This mail is" --template "Spam or ham? {text}"',
    ),
)
@options.several_models_option
@options.of_examples
@options.gold_option
@click.option(
    "--template",
    "templates",
    multiple=True,
    help=r"Prompt template with {text} to try. Repeatable.",
)
@click.option(
    "--templates",
    "template_list",
    type=options.FILE,
    help="Read templates from FILE, one per line.",
)
@click.option(
    *("--label-sentence", "sentences"),
    multiple=True,
    metavar="TEXT",
    help="For an encoder, instead of a template: sentence of a label, with {label}, to try. "
    "Repeatable. [default: several]",
)
@click.option(
    "--task", "tasks", type=options.FILE, multiple=True, help="Task file to try. Repeatable."
)
@options.labels_option
@options.labels_file_option
@options.label_prefix_option
@click.option(
    "--words",
    multiple=True,
    metavar="LABEL=A,B",
    help="Also try these words for LABEL. Repeatable.",
)
@click.option(
    *("--level", "levels"),
    type=click.Choice(["raw", "L0", "L1", "L2"]),
    multiple=True,
    help="Calibration level to try: raw (uncalibrated), L0 (without the prior), L1 (fitted on gold "
    "labels), L2 (linear classifier on hidden states). Repeatable. [default: all available]",
)
@click.option(
    "--error-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Target error rate of the accepted labels, at 95% confidence; half of the rows are set "
    "aside to find the threshold.",
)
@click.option(
    "-o",
    "--output",
    type=options.OUTPUT_FILE,
    metavar="TASK",
    help="Task file to write for the best candidate.",
)
@click.option("--overwrite", is_flag=True, help="Replace a TASK that infer-cli wrote.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@options.verbose_option
@options.load_options
def tune(**given: Any) -> None:
    """Compare prompt templates and save the best as a task file.

    Each template is tried with the labels as they are and with --words, at each calibration level;
    with an encoder, which reads the text alone, each label sentence.
    With gold labels (--gold), the most accurate is chosen on held-out rows, and its expected
    accuracy is estimated by nested cross-validation. Without them, the choice rests on weaker
    signals. With --gold, the accuracy that learn would reach (L2) is shown for comparison. Use the
    file with classify --task TASK.

    Several models (-m A -m B) are compared in one table, each with its best candidate, and the
    best one is saved.
    """
    from core_cli.tasks import candidates, tuning

    tuning.run(candidates.TuneFlags(**given))
