"""A progress bar for commands on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows progress as a bar if stderr is a terminal."""
    import click

    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    with ExitStack() as stack:
        bar: list[Any] = []

        def show(done: int, total: int) -> None:
            # The bar counts from its start: the work before the weights says nothing about them.
            if not bar:
                drawn = click.progressbar(length=total, label=label, file=sys.stderr)
                bar.append(stack.enter_context(drawn))
            bar[0].update(done - bar[0].pos)

        yield show
