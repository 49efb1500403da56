"""Compares an accuracy with guessing, and advises what to try if it is not better."""

from __future__ import annotations

from collections.abc import Sequence

from core_cli import output
from core_tasks.agreement.baseline import Baseline, baseline_of

FEW_ROWS = 100


def say(texts: Sequence[str], gold: Sequence[str]) -> Baseline | None:
    """Print the accuracy of guessing on these rows, and return it; nothing without rows."""
    baseline = baseline_of(texts, gold)
    if baseline is not None:
        output.say(f"for comparison, {baseline}")
    return baseline


def say_next(
    baseline: Baseline | None, low: float, head: float | None = None, *, of: str = "prompt"
) -> None:
    """Print what to try if the accuracy may be that of guessing, or if n-grams are better.

    ``low`` is the lower end of its 95 % interval, ``head`` that of a classifier head, if tried.
    """
    if baseline is None:
        return
    if low > max(baseline.share, baseline.ngrams or 0.0):
        return
    if low <= baseline.share:
        output.say(f"No {of} is shown to be better than always answering {baseline.label!r}.")
    else:
        output.say("Character n-grams, which know no language, may be as good.")
    output.say("Try: " + "; ".join(_advice(baseline, head)) + ".")


def _advice(baseline: Baseline, head: float | None) -> list[str]:
    steps = []
    if head is not None and head > baseline.share:
        steps.append("a classifier head (infer-cli learn), which is better on these rows")
    if baseline.rows < FEW_ROWS:
        steps.append(f"more rows, as {baseline.rows} say little")
    return [
        *steps,
        "a larger model, or an encoder (infer-cli discover lists yours)",
        "an adapter (infer-cli lora train)",
    ]
