"""``infer-cli generate``: what a model says behind a prompt, as it comes; or behind many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from core.cli import output, settings
from core.cli.rows import asking

if TYPE_CHECKING:
    from core.cli.loading import Loaded
    from core.cli.rows.inputs import Row
    from core.options import GenerateConfig
    from core.protocols import TextModel
    from core.types import BatchResult, GenerateMetrics


@click.command()
@asking.prompt_options
@settings.answer_options
@click.option("--logprobs", "return_logprobs", is_flag=True, default=None, help="With --json.")
@settings.sampling_options
@settings.load_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what was chosen, and why.")
def generate(**flags: Any) -> None:
    """Write what a model says behind prompts.

    A prompt that is an argument is answered as the tokens come. Several, or lines of -i FILE or
    piped to stdin (text or JSONL), are answered together, a line for each in input order; rows
    that fail are reported, and the exit code is then 5.
    """
    with asking.rows_of(flags) as rows:
        if flags["return_logprobs"] and not flags["as_json"]:
            raise click.UsageError("--logprobs go with --json, which has a place for them.")
        asking.warn_of_file(flags["prompts"])
        _generate(flags, rows)


def _generate(flags: dict[str, Any], rows: Iterator[Row]) -> None:
    from core.cli.loading import explain, load
    from core.cli.rows.bulk import Question
    from core.cli.rows.results import ANSWERS
    from core.protocols import Capability
    from core.types import BatchResult

    config = settings.answer_config(flags, **settings.given(flags, ("return_logprobs",)))
    loaded = load(flags["model"], settings.load_config(flags), Capability.GENERATE)
    with loaded.model as model:
        if flags["verbose"]:
            explain(loaded)
        if len(flags["prompts"]) == 1 and flags["prompts"] != ("-",) and not flags["as_json"]:
            _stream(flags, loaded, next(rows), config)
            return
        together = Capability.BATCH_GENERATE in loaded.backend.capabilities
        ask = model.batch_generate if together else _one_by_one(model)
        question = Question(ask, lambda error: BatchResult(finish_reason="error", error=error))
        asking.write_answers(flags, loaded, rows, config, question, ANSWERS)


def _stream(flags: dict[str, Any], loaded: Loaded, row: Row, config: GenerateConfig) -> None:
    """Write one answer as it comes. What a terminal would obey is shown as escapes."""
    if row.error is not None:
        raise row.error
    prompt = asking.prompt_maker(flags, loaded).prompt(row)
    ended = False
    with closing(loaded.model.generate(prompt, config)) as stream:
        try:
            for token in stream:
                output.write_text(token.text)
            ended = True
        finally:
            if ended or output.is_terminal():
                output.write_text("\n")
    if flags["verbose"]:
        output.say(_told(stream.finish_reason, stream.metrics))


def _told(reason: str | None, metrics: GenerateMetrics) -> str:
    count = output.counted(metrics.generated_tokens, "token")
    rate = metrics.decode_tokens_per_second
    return f"{reason}: {count} in {metrics.total_seconds:.1f} s, {rate:.1f} tokens/s"


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
