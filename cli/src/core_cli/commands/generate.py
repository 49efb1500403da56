"""``infer-cli generate``: text after a prompt, streamed, or after many prompts."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from core_cli import output, settings
from core_cli.reading import form_of_output
from core_cli.rows import checks, flags, input
from core_cli.rows.asker import answering

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core.types import GenerateMetrics
    from core_cli.loading import Loaded
    from core_cli.reading.row import Row


@click.command()
@flags.of_rows
@settings.answer_options
@click.option(
    "--logprobs",
    "return_logprobs",
    is_flag=True,
    default=None,
    help="Include token log-probabilities (needs --json).",
)
@flags.of_output
@settings.sampling_options
@settings.load_options
def generate(**given: Any) -> None:
    """Generate text from prompts.

    The answer to a single PROMPT is streamed. Several prompts, or rows from -i FILE (text, JSON
    lines, a JSON array, CSV, TSV, Parquet) or stdin, run as one batch, in input order. With -o OUT
    progress is saved, and --resume continues an interrupted run. Failed rows are reported, and the
    exit code is then 5.
    """
    checks.refuse(given)
    if given["return_logprobs"] and not _json(given):
        raise click.UsageError("--logprobs requires --json.")
    input.warn_of_file(given["prompts"])
    config = settings.answer_config(given, **settings.given(given, ("return_logprobs",)))
    one = len(given["prompts"]) == 1 and given["prompts"] != ("-",)
    if one and not (_json(given) or given["to"] or given["show_prompt"] or given["dry_run"]):
        _stream(given, config)
    else:
        _generate(given, config)


def _json(given: dict[str, Any]) -> bool:
    if given["output"] is not None:
        return form_of_output(given) in ("jsonl", "json")
    return given["as_json"] or given["to"] in ("jsonl", "json")


def _generate(given: dict[str, Any], config: GenerateConfig) -> None:
    from core.protocols import Capability
    from core_cli.jobs.run import Task, run
    from core_cli.writing import answers

    def room(loaded: Loaded) -> int:
        return min(config.max_tokens, loaded.model.info.context_length // 2)

    kind = answers.generated(with_tokens=config.return_logprobs)
    run(given, Task("generate", Capability.GENERATE, config, kind, answering, answering, room=room))


def _stream(given: dict[str, Any], config: GenerateConfig) -> None:
    """Stream one answer. Terminal control characters are shown as escapes."""
    from core.protocols import Capability
    from core_cli.loading import explain, load

    template = checks.template_of(given)
    with input.opened(given, template) as rows:
        row: Row = next(rows.rows)
    if row.error is not None:
        raise row.error
    loaded = load(given["model"], settings.load_config(given), Capability.GENERATE)
    with loaded.model as model:
        if given["verbose"]:
            explain(loaded)
        prompt = input.prompt_maker(given, loaded, template, config).prompt(row)
        with closing(model.generate(prompt, config)) as stream:
            ended = False
            try:
                for token in stream:
                    output.write_text(token.text)
                ended = True
            finally:
                if ended or output.is_terminal():
                    output.write_text("\n")
        if given["verbose"]:
            output.say(_told(stream.finish_reason, stream.metrics))


def _told(reason: str | None, metrics: GenerateMetrics) -> str:
    count = output.counted(metrics.generated_tokens, "token")
    rate = metrics.decode_tokens_per_second
    return f"{reason}: {count} in {metrics.total_seconds:.1f} s, {rate:.1f} tokens/s"
