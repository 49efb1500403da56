"""``infer-cli generate``: text after a prompt, streamed, or after many prompts."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from core_cli import help, options, output
from core_cli.rows import checks, input

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core.types import GenerateMetrics
    from core_cli.flags import RowFlags
    from core_cli.loading import Loaded
    from core_cli.reading.row import Row


@click.command(
    cls=help.Command,
    epilog=help.examples(
        'infer-cli generate -m MODEL "Once upon a time" -n 64',
        "infer-cli generate -m MODEL -i questions.jsonl --chat -o answers.jsonl",
    ),
)
@options.of_rows
@options.answer_options("256")
@click.option(
    "--logprobs",
    "return_logprobs",
    is_flag=True,
    default=None,
    help="Include token log-probabilities (needs --json).",
)
@options.of_output
@options.sampling_options
@options.load_options
def generate(**given: Any) -> None:
    """Generate text from prompts.

    The answer to a single PROMPT is streamed. Several prompts, or rows from -i FILE (text, JSON
    lines, a JSON array, CSV, TSV, Parquet) or stdin, run as one batch, in input order. With -o OUT
    progress is saved, and --resume continues an interrupted run. Failed rows are reported, and the
    exit code is then 5.
    """
    from core_cli.flags import RowFlags
    from core_cli.flags import given as options_given

    flags = RowFlags(**given)
    checks.refuse(flags)
    if flags.return_logprobs and not _json(flags):
        raise click.UsageError("--logprobs requires --json.")
    input.warn_of_file(flags.prompts)
    config = flags.answer_config(**options_given(return_logprobs=flags.return_logprobs))
    one = len(flags.prompts) == 1 and flags.prompts != ("-",)
    if one and not (_json(flags) or flags.to or flags.show_prompt or flags.dry_run):
        _stream(flags, config)
    else:
        _generate(flags, config)


def _json(flags: RowFlags) -> bool:
    if flags.output is not None:
        return flags.output_form in ("jsonl", "json")
    return flags.as_json or flags.to in ("jsonl", "json")


def _generate(flags: RowFlags, config: GenerateConfig) -> None:
    from core.protocols import Capability
    from core_cli.jobs.run import RowJob, run
    from core_cli.rows.asker import answering
    from core_cli.writing import answers

    def room(loaded: Loaded) -> int:
        return min(config.max_tokens, loaded.model.info.context_length // 2)

    kind = answers.generated(with_tokens=config.return_logprobs)
    run(
        flags,
        RowJob("generate", Capability.GENERATE, config, kind, answering, answering, room=room),
    )


def _stream(flags: RowFlags, config: GenerateConfig) -> None:
    """Stream one answer. Terminal control characters are shown as escapes."""
    from core.protocols import Capability
    from core_cli.loading import explain, load

    template = checks.template_of_rows(flags)
    with input.opened(flags, template) as rows:
        row: Row = next(rows.rows)
    if row.error is not None:
        raise row.error
    loaded = load(flags.need_model(), flags.load_config(), Capability.GENERATE)
    with loaded.model as model:
        if flags.verbose:
            explain(loaded)
        prompt = input.prompt_maker(flags, loaded, template, config).prompt(row)
        with closing(model.generate(prompt, config)) as stream:
            ended = False
            try:
                for token in stream:
                    output.write_text(token.text)
                ended = True
            finally:
                if ended or output.is_terminal():
                    output.write_text("\n")
        if flags.verbose:
            output.say(_statistics(stream.finish_reason, stream.metrics))


def _statistics(reason: str | None, metrics: GenerateMetrics) -> str:
    count = output.counted(metrics.generated_tokens, "token")
    rate = metrics.decode_tokens_per_second
    return f"{reason}: {count} in {metrics.total_seconds:.1f} s, {rate:.1f} tokens/s"
