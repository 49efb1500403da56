"""``infer-cli generate``: what a model says behind a prompt, as it comes; or behind many."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from core.cli import output, settings
from core.cli.rows import asking, checks, flags

if TYPE_CHECKING:
    from core.cli.loading import Loaded
    from core.cli.reading.row import Row
    from core.cli.rows.bulk import Ask
    from core.options import GenerateConfig
    from core.protocols import TextModel
    from core.types import BatchResult, GenerateMetrics


@click.command()
@flags.of_rows
@settings.answer_options
@click.option("--logprobs", "return_logprobs", is_flag=True, default=None, help="With --json.")
@flags.of_output
@settings.sampling_options
@settings.load_options
def generate(**given: Any) -> None:
    """Write what a model says behind prompts.

    A prompt that is an argument is answered as the tokens come. Several, or rows of -i FILE (text,
    JSON lines, a JSON array, CSV, TSV, Parquet) or piped to stdin, are answered together, in input
    order, on stdout or as a job in -o OUT, which --resume goes on with after any end. Rows that
    fail are reported, and the exit code is then 5.
    """
    checks.refuse(given)
    if given["return_logprobs"] and not _json(given):
        raise click.UsageError("--logprobs go with --json, which has a place for them.")
    asking.warn_of_file(given["prompts"])
    config = settings.answer_config(given, **settings.given(given, ("return_logprobs",)))
    one = len(given["prompts"]) == 1 and given["prompts"] != ("-",)
    if one and not (_json(given) or given["to"] or given["show_prompt"] or given["dry_run"]):
        _stream(given, config)
    else:
        _generate(given, config)


def _json(given: dict[str, Any]) -> bool:
    if given["output"] is not None:
        from core.cli.jobs.job import form_of_output

        return form_of_output(given) in ("jsonl", "json")
    return given["as_json"] or given["to"] in ("jsonl", "json")


def _generate(given: dict[str, Any], config: GenerateConfig) -> None:
    from core.cli.jobs.run import Task, run
    from core.cli.writing import answers
    from core.protocols import Capability

    def room(loaded: Loaded) -> int:
        return min(config.max_tokens, loaded.model.info.context_length // 2)

    kind = answers.generated(with_tokens=config.return_logprobs)
    run(given, Task("generate", Capability.GENERATE, config, kind, answering, answering, room=room))


def _stream(given: dict[str, Any], config: GenerateConfig) -> None:
    """Write one answer as it comes. What a terminal would obey is shown as escapes."""
    from core.cli.loading import explain, load
    from core.protocols import Capability

    template = checks.template_of(given)
    with asking.opened(given, template) as rows:
        row: Row = next(rows.rows)
    if row.error is not None:
        raise row.error
    loaded = load(given["model"], settings.load_config(given), Capability.GENERATE)
    with loaded.model as model:
        if given["verbose"]:
            explain(loaded)
        prompt = asking.prompt_maker(given, loaded, template, config).prompt(row)
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


def answering(loaded: Loaded) -> Ask:
    """The operation that answers many prompts: of a backend without one, one by one."""
    from core.protocols import Capability

    together = Capability.BATCH_GENERATE in loaded.capabilities
    return loaded.model.batch_generate if together else _one_by_one(loaded.model)


def _one_by_one(model: TextModel) -> Any:
    """``batch_generate`` of a backend that has none: one stream behind the other."""
    from core.errors import CoreError
    from core.types import BatchResult, Token

    def answer(prompt: str, config: GenerateConfig) -> BatchResult:
        tokens: list[Token] = []
        try:
            with closing(model.generate(prompt, config)) as stream:
                tokens.extend(stream)
        except CoreError as error:
            return BatchResult(tuple(tokens), "error", error)
        return BatchResult(tuple(tokens), stream.finish_reason or "stop")

    def answers(prompts: Sequence[str], config: GenerateConfig) -> list[BatchResult]:
        return [answer(prompt, config) for prompt in prompts]

    return answers
