"""``infer-cli eval``: accuracy and speed on a file of questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from core_cli import exits, help, options, output, reports

if TYPE_CHECKING:
    from core_cli.evaluation.items import EvalFlags


@click.command(
    "eval",
    cls=help.Command,
    epilog=help.examples(
        "infer-cli eval -m MODEL -i questions.jsonl --few-shot examples.jsonl",
        "infer-cli eval -i questions.jsonl --compare MODEL-A MODEL-B",
    ),
)
@options.optional_model_option
@click.option(
    "-i", "--input", "file", type=options.FILE_OR_STDIN, help="Read items from FILE; - is stdin."
)
@options.format_option
@options.encoding_option
@click.option(
    "--text-field", "field", help="Input field with the question. [default: question, ctx, ...]"
)
@click.option(
    *("--gold", "answer_field"),
    metavar="FIELD",
    help="Input field with the correct answer. [default: answer, label, ...]",
)
@click.option(
    "--choices-field", help="Input field with the answer choices. [default: choices, endings, ...]"
)
@click.option("--id-field", help="Input field with the item id. [default: custom_id or id]")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="Process only the first N items."
)
@click.option("--few-shot", type=options.FILE, help="File of examples to prepend to each item.")
@click.option(
    "--shots",
    type=click.IntRange(1),
    metavar="N",
    help="Use only the first N examples of --few-shot.",
)
@click.option(
    "--template",
    help=r"Prompt template; {question}, {choices}, other {field}s are filled in, \n is a newline.",
)
@click.option("--template-file", type=options.FILE, help="Read the template from FILE.")
@click.option(
    "--answer-prefix", help="Text between prompt and answer. [default: a space, if it fits]"
)
@options.label_sentence_option
@click.option(
    "--letters", is_flag=True, help="Score the letters of the choices instead of their texts."
)
@click.option("--chat", is_flag=True, help="Use the model's chat template.")
@click.option("-s", "--system", help="System message; implies --chat.")
@options.template_options
@click.option(
    "--metric",
    type=click.Choice(["exact", "numeric", "choice"]),
    help="How answers are scored. [default: choice if items have choices, else exact]",
)
@click.option(
    "--extract", metavar="REGEX", help="Score only the last match of REGEX in the answer."
)
@click.option("--ignore-case", is_flag=True, help="Ignore case with --metric exact.")
@click.option("--ignore-punctuation", is_flag=True, help="Ignore punctuation with --metric exact.")
@click.option(
    "--gen-batch-size",
    type=options.Numbers(),
    default=(),
    help="Batch size; with several, runs are interleaved and timed.",
)
@click.option(
    "--num-samples", type=click.IntRange(1), default=1, help="Samples per item. [default: 1]"
)
@click.option("--pass-at", type=options.Numbers(), default=(), help="Report pass@K for these K.")
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Exit with 1 if the accuracy (with --compare: the agreement) is below SHARE.",
)
@click.option(
    "--task", type=options.FILE, help="Measure a task file on rows with gold labels instead."
)
@click.option(
    "--head", type=options.FILE, help="Measure a classifier head on rows with gold labels instead."
)
@click.option(
    "--from", "saved", type=options.FILE, help="Recompute the metrics of a saved evaluation."
)
@click.option(
    "--compare",
    nargs=2,
    metavar="A B",
    help="Compare two saved evaluations, models or settings NAME=VALUE (model, backend, "
    "template, adapter-path, system).",
)
@options.answer_options("256")
@options.of_output
@options.sampling_options
@options.load_options
def evaluate(**given: Any) -> None:
    """Measure accuracy on a file of questions.

    Items (JSON lines, a JSON array, CSV, TSV, Parquet) have a question, an answer and, for multiple
    choice, its choices. The choice that is most likely to follow the prompt is selected; other
    answers are generated and compared as words, or by the number in them. stderr reports the
    accuracy with its 95% interval, and the speed; each item is written with its score to stdout,
    or to -o OUT. With --task or --head, rows have a text and a gold label, and the metrics are
    those of classify --gold.
    """
    from core_cli.evaluation.items import EvalFlags

    flags = EvalFlags(**given)
    if flags.compare:
        from core_cli.evaluation.comparing import compare

        if flags.output or flags.saved:
            raise click.UsageError("--compare cannot be combined with -o or --from.")
        compare(flags)
    elif flags.task or flags.head:
        from core_cli.evaluation.files import evaluate_file

        evaluate_file(flags)
    elif flags.saved:
        _reckon(flags)
    else:
        from core_cli.evaluation import running

        running.evaluate(flags)


def _reckon(flags: EvalFlags) -> None:
    from core_cli.evaluation.saved import reckon

    if flags.file or flags.output:
        raise click.UsageError(
            "--from reads a saved evaluation and cannot be combined with -i or -o."
        )
    reports.check(flags.report)
    assert flags.saved is not None
    marks = reckon(flags.saved, flags.pass_at)
    if flags.as_json:
        output.write_json(marks.to_dict())
    else:
        marks.tell()
    if flags.report:
        reports.save(flags.report, marks.to_dict())
    if flags.fail_under is not None:
        exits.check_accuracy(marks.tally.accuracy, flags.fail_under)
