"""Asking about a stream of rows in growing blocks: early output, bounded memory, input order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from core.cli import output
from core.cli.interrupts import interrupt_sets
from core.cli.rows.inputs import Row
from core.cli.rows.prompts import PromptMaker
from core.cli.rows.results import Outcome, Result
from core.errors import CoreError, GenerationCancelled
from core.options import GenerateConfig
from core.support import block_sizes

FIRST_BLOCK, LARGEST_BLOCK = 32, 1024
LARGEST_TEXT = 16 * 2**20
"""Characters after which a block ends early."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about each block of prompts, and the result of a row that was not asked."""

    ask: Callable[[Sequence[str], GenerateConfig], Sequence[Result]]
    failed: Callable[[Exception], Result]


def answered(
    question: Question, maker: PromptMaker, rows: Iterable[Row], config: GenerateConfig
) -> Iterator[list[Outcome]]:
    """Yield one list of outcomes per block of rows, in input order.

    On Ctrl-C the model is asked to stop, the rows that are done are yielded, and then
    KeyboardInterrupt is raised. Raises BrokenPipeError before a block that nobody
    would read.
    """
    cancel = threading.Event()
    config = replace(config, cancel=cancel)

    for block in _blocks(rows):
        output.check_reader()
        with interrupt_sets(cancel):
            outcomes = _asked(question, maker, block, config)
            if cancel.is_set():
                outcomes = [outcome for outcome in outcomes if not _cancelled(outcome)]
            yield outcomes  # an interrupt does not tear what the caller writes now
        if cancel.is_set():
            raise KeyboardInterrupt


def _blocks(rows: Iterable[Row]) -> Iterator[list[tuple[int, Row]]]:
    """Number the rows, by 32, 64, 128 ... up to 1,024: the first results should come soon."""
    source = enumerate(rows)
    for size in block_sizes(FIRST_BLOCK, LARGEST_BLOCK):
        block = list(_bounded(islice(source, size)))
        if not block:
            return
        yield block


def _bounded(rows: Iterable[tuple[int, Row]]) -> Iterator[tuple[int, Row]]:
    """Yield the rows up to the one with which their texts become too much to hold."""
    length = 0
    for row in rows:
        yield row
        length += len(row[1].text)
        if length > LARGEST_TEXT:
            return


def _asked(
    question: Question, maker: PromptMaker, block: list[tuple[int, Row]], config: GenerateConfig
) -> list[Outcome]:
    prepared = [_prepared(maker, row) for _, row in block]
    prompts = [prompt for prompt in prepared if isinstance(prompt, str)]
    results = iter(question.ask(prompts, config) if prompts else ())
    return [
        (index, row, next(results) if isinstance(prompt, str) else question.failed(prompt))
        for (index, row), prompt in zip(block, prepared, strict=True)
    ]


def _prepared(maker: PromptMaker, row: Row) -> str | Exception:
    if row.error is not None:
        return row.error
    try:
        return maker.prompt(row)
    except CoreError as error:  # a chat template that refuses this row
        return error


def _cancelled(outcome: Outcome) -> bool:
    return isinstance(outcome[2].error, GenerationCancelled)
