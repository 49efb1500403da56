"""``infer-cli bench``: benchmark a model, with the test names of llama-bench."""

from __future__ import annotations

from typing import Any

import click

from core_cli import help, options
from core_cli.options import OUTPUT_FILE, Numbers

_KINDS = ("pp", "tg", "sampling", "ttft", "classify", "generate")


@click.command(
    cls=help.Command,
    epilog=help.examples(
        "infer-cli bench -m MODEL", "infer-cli bench -m MODEL --compare backend=llama_cpp --only tg"
    ),
)
@options.model_option
@click.option(
    "--compare",
    multiple=True,
    metavar="B",
    help="Also benchmark this model, backend=NAME or adapter-path=PATH. Repeatable.",
)
@click.option(
    "--pp", type=click.IntRange(1), default=512, help="Prompt length in tokens. [default: 512]"
)
@click.option(
    "--tg", type=click.IntRange(1), default=128, help="Number of tokens to generate. [default: 128]"
)
@click.option(
    "--batch-size",
    type=Numbers(),
    default=(1, 8, 32),
    help="Batch sizes to test. [default: 1,8,32]",
)
@click.option(
    "--repetitions",
    "-r",
    type=click.IntRange(1),
    default=5,
    help="Measured repetitions. [default: 5]",
)
@click.option(
    "--warmup", type=click.IntRange(0), default=1, help="Warm-up runs, not counted. [default: 1]"
)
@click.option(
    "--only",
    type=click.Choice(_KINDS),
    multiple=True,
    help="Run only this kind of test. Repeatable. [default: all]",
)
@click.option(
    "--to",
    type=click.Choice(["table", "json", "jsonl", "csv", "md"]),
    help="Output format. [default: from the suffix of OUT; table on stdout]",
)
@click.option("-o", "--output", type=OUTPUT_FILE, metavar="OUT", help="Write the results to OUT.")
@click.option("--plot", type=OUTPUT_FILE, metavar="FILE", help="Plot the results to FILE (SVG).")
@options.verbose_option
@options.load_options
def bench(**given: Any) -> None:
    """Benchmark a model.

    pp512 reads a prompt of 512 tokens, tg128 generates 128 tokens one by one, tg128+chain does the
    same with all samplers, ttft512 is the time to the first token in seconds, classify@8 labels 8
    prompts of 64 tokens, generate@8 generates 32 tokens for each of 8 short prompts. With
    --compare, runs are interleaved.
    """
    from core_cli.bench import running

    running.run(running.BenchFlags(**given))
