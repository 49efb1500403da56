"""``infer-cli bench``: how fast a model is here, by the names of llama-bench."""

from __future__ import annotations

from typing import Any

import click

from core.cli import settings
from core.cli.rows.flags import OUTPUT_FILE, Numbers

_KINDS = ("pp", "tg", "sampling", "ttft", "classify", "generate")


@click.command()
@settings.model_option
@click.option("--compare", multiple=True, metavar="B", help="A model, or backend=NAME; repeatable.")
@click.option("--pp", type=click.IntRange(1), default=512, help="Tokens of a prompt: 512.")
@click.option("--tg", type=click.IntRange(1), default=128, help="Tokens of a text: 128.")
@click.option(
    "--batch-size", type=Numbers(), default=(1, 8, 32), help="Rows of a call; default: 1,8,32."
)
@click.option("--repetitions", "-r", type=click.IntRange(1), default=5, help="That count: 5.")
@click.option("--warmup", type=click.IntRange(0), default=1, help="That do not: 1.")
@click.option("--only", type=click.Choice(_KINDS), multiple=True, help="These tests; repeatable.")
@click.option("--to", type=click.Choice(["table", "json", "jsonl", "csv", "md"]))
@click.option("-o", "--output", type=OUTPUT_FILE, metavar="OUT", help="A file.")
@click.option("--plot", type=OUTPUT_FILE, metavar="FILE", help="An SVG of it.")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what was chosen, and why.")
@settings.load_options
def bench(**given: Any) -> None:
    """Measure how fast a model is.

    pp512 is a prompt of 512 tokens, tg128 are 128 tokens one by one, tg128+chain the same with all
    samplers, ttft512 the seconds to the first token, classify@8 labels for 8 prompts of 64 tokens,
    generate@8 texts of 32 tokens behind 8 short ones. What is compared takes turns.
    """
    from core.cli.benchmarking import running

    running.run(given)
