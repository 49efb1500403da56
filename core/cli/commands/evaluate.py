"""``infer-cli eval``: how many items of a file a model answers rightly, and how fast."""

from __future__ import annotations

from typing import Any

import click

from core.cli import output, reports, settings
from core.cli.reading.forms import FORMS
from core.cli.rows import flags


@click.command("eval")
@settings.model_option
@click.option("-i", "--input", "file", type=flags.FILE_OR_STDIN, help="Items; - is stdin.")
@click.option("--format", "form", type=click.Choice(["auto", *FORMS]), default="auto")
@click.option("--field", help="The field with the question; default: question, ctx, ...")
@click.option("--answer-field", help="The field with what is right; default: answer, label, ...")
@click.option("--choices-field", help="The field with choices; default: choices, endings, ...")
@click.option("--id-field", help="The field that names a row; default: custom_id or id.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N items only.")
@click.option("--few-shot", type=flags.FILE, help="Examples that stand before each item.")
@click.option("--shots", type=click.IntRange(1), metavar="N", help="The first N of them.")
@click.option("--template", help=r'The prompt: "...{question}...", also {choices}, {fields}, \n.')
@click.option("--template-file", type=flags.FILE, help="A file that holds it.")
@click.option("--answer-prefix", help="Text before an answer. [default: a space, if it fits]")
@click.option("--letters", is_flag=True, help="Ask for the letter of a choice.")
@click.option("--chat", is_flag=True, help="Use the model's chat template.")
@click.option("-s", "--system", help="A system message; implies --chat.")
@settings.template_options
@click.option(
    "--metric",
    type=click.Choice(["exact", "numeric", "choice"]),
    help="When an answer is right; default: choice where items have some, else exact.",
)
@click.option("--extract", metavar="REGEX", help="What counts in an answer: its last match.")
@click.option("--ignore-case", is_flag=True, help="For exact.")
@click.option("--ignore-punctuation", is_flag=True, help="For exact.")
@click.option(
    "--gen-batch-size",
    type=flags.Numbers(),
    default=(),
    help="Ask so many together; several in turns.",
)
@click.option("--num-samples", type=click.IntRange(1), default=1, help="Texts for each item.")
@click.option("--pass-at", type=flags.Numbers(), default=(), help="Chances that one of K is right.")
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Exit with 1 where fewer are right; with --compare, answered alike.",
)
@click.option("--from", "saved", type=flags.FILE, help="Reckon an evaluation's figures again.")
@click.option(
    "--compare",
    nargs=2,
    metavar="A B",
    help="Two evaluations, models, or NAME=VALUE: model, backend, template, adapter-path, system.",
)
@settings.answer_options
@flags.of_output
@settings.sampling_options
@settings.load_options
def evaluate(**given: Any) -> None:
    """Say how many items a model answers rightly.

    An item has a question, an answer, and choices where one of these is to be found: JSON lines,
    a JSON array, CSV, TSV or Parquet. A choice is taken by how likely it is behind the prompt;
    texts are compared as words, or by the number in them. The accuracy, its interval (95 %) and
    the speed are told on stderr; items come with their marks on stdout, or as a job in -o OUT.
    """
    if given["compare"]:
        from core.cli.evaluation.comparing import compare

        if given["output"] or given["saved"]:
            raise click.UsageError("--compare writes no items: leave -o and --from away.")
        compare(given)
    elif given["saved"]:
        _reckon(given)
    else:
        from core.cli.evaluation import running

        running.evaluate(given)


def _reckon(given: dict[str, Any]) -> None:
    from core.cli.evaluation.running import check_accuracy
    from core.cli.evaluation.saved import reckon

    if given["file"] or given["output"]:
        raise click.UsageError("--from reads what was asked already: leave -i and -o away.")
    reports.check(given["report"])
    marks = reckon(given["saved"], given["pass_at"])
    if given["as_json"]:
        output.write_json(marks.to_dict())
    else:
        marks.tell()
    if given["report"]:
        reports.save(given["report"], marks.to_dict())
    if given["fail_under"] is not None:
        check_accuracy(marks, given["fail_under"])
