"""``infer-cli tune``: which prompt, words and level to take, as a table and a task file."""

from __future__ import annotations

from typing import Any

import click

from core.cli import settings
from core.cli.rows import flags


@click.command()
@settings.model_option
@flags.of_examples
@click.option("--gold", metavar="FIELD", help="The field with the right label.")
@click.option("--template", "templates", multiple=True, help=r'A prompt to try: "...{text}...".')
@click.option("--templates", "template_list", type=flags.FILE, help="A file with one on each line.")
@click.option("--task", "tasks", type=flags.FILE, multiple=True, help="A task file to try.")
@click.option("--labels", metavar="A,B,C", help="The labels to choose from.")
@click.option("--labels-file", type=flags.FILE, help="The labels, one a line.")
@click.option("--label-prefix", help="Text before a label. [default: a space, if it fits]")
@click.option(
    "--words", multiple=True, metavar="LABEL=A,B", help="Words for a label, tried beside the plain."
)
@click.option(
    *("--level", "levels"),
    type=click.Choice(["raw", "L0", "L1", "L2"]),
    multiple=True,
    help="Default: all that there are.",
)
@click.option(
    "--error-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Accept labels of which, with 95 % confidence, no larger share is wrong; half of the "
    "rows are set aside to find the threshold.",
)
@click.option("-o", "--output", type=flags.OUTPUT_FILE, metavar="TASK")
@click.option("--overwrite", is_flag=True, help="Replace a TASK that was written before.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what was chosen, and why.")
@settings.load_options
def tune(**given: Any) -> None:
    """Try prompts on texts, and write the best as a task file.

    Each template, with the labels' own words and with --words, is tried at each level. With the
    right labels (--gold) the most accurate one is chosen, on rows that it was not fitted on, and
    what it is worth is told by nested cross-validation; without, by weak signs. A head (L2) needs
    no prompt: what learn would come to is told beside. classify --task TASK asks as the file says.
    """
    from core.cli.tasks import tuning

    tuning.run(given)
