"""Compares an accuracy with guessing, and advises what to try if it is not better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from core_cli import output, suggestions
from core_tasks.agreement.baseline import Baseline, baseline_of

if TYPE_CHECKING:
    from core_cli.flags import FitFlags, RowFlags

FEW_ROWS = 100


def say(texts: Sequence[str], gold: Sequence[str]) -> Baseline | None:
    """Print the accuracy of guessing on these rows, and return it; nothing without rows."""
    baseline = baseline_of(texts, gold)
    if baseline is not None:
        output.say(f"for comparison, {baseline}")
    return baseline


def say_next(
    baseline: Baseline | None,
    low: float,
    flags: FitFlags | RowFlags,
    head: float | None = None,
    *,
    of: str = "prompt",
) -> bool:
    """Print what to try if the accuracy may be that of guessing, or if n-grams are better.

    ``low`` is the lower end of its 95 % interval, ``head`` that of a classifier head, if tried;
    ``of`` is "head" if the accuracy is its own. Return whether something was printed.
    """
    if baseline is None or low > max(baseline.share, baseline.ngrams or 0.0):
        return False
    if low <= baseline.share:
        output.say(f"No {of} is shown to be better than always answering {baseline.label!r}. Try:")
    else:
        output.say("Character n-grams, which know no language, may be as good. Try:")
    for step in _advice(baseline, low, flags, head, of):
        output.say(f"- {step}")
    return True


def _advice(
    baseline: Baseline, low: float, flags: FitFlags | RowFlags, head: float | None, of: str
) -> Iterator[str]:
    """Yield the steps, each with its reason and, if there is one, its command."""
    if of != "head" and (head is None or head > baseline.share):
        why = "" if head is None or head <= low else ", and is better on these rows"
        learn = suggestions.learn_command(flags)
        yield f"a classifier head, which needs no prompt{why}:\n{learn}"
    if baseline.rows < FEW_ROWS:
        yield f"more rows with gold labels, as {baseline.rows} say little"
    yield f"a larger model, or an encoder; of those that you have:\n{suggestions.DISCOVER}"
    adapter = suggestions.train_command(flags)
    yield f"an adapter, which changes the model itself:\n{adapter}"
