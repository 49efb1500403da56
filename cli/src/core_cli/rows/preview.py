"""Previews of a job: its first prompt, and an estimate of its cost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from core.extensions import Tokenizing
from core_cli import output
from core_cli.rows.joining import compared, joined

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core_cli.loading import Loaded
    from core_cli.reading.row import Row
    from core_cli.rows.asker import RowAsker

_SAMPLE, _COUNTED = 32, 1000


def show(
    asker: RowAsker,
    rows: Iterator[Row],
    shown: Callable[[str], str] = str,
    labelled: GenerateConfig | None = None,
    *,
    sentences: bool = False,
) -> None:
    """Print the first row's prompt, how labels are joined to it, and the result.

    ``labelled`` has the labels, ``sentences`` if they are compared with the prompt instead. Raises
    the error of a row that has no prompt.
    """
    row = next(rows, None)
    if row is None:
        output.warn("no row to show")
        return
    prompt = asker.prompt(row)
    if isinstance(prompt, Exception):
        raise prompt
    read = shown(prompt)
    output.write_text(f"{read}\n")

    [answered], _ = asker.answered([row], threading.Event())
    if answered.error is not None:
        raise answered.error
    output.say(f"--- {row.place}, {len(read)} characters")
    if asker.variables:
        output.say(f"chat_template_kwargs: {json.dumps(dict(asker.variables))}")
    if labelled is not None:
        output.say(compared(labelled) if sentences else joined(read, labelled))
    probabilities, mass = answered.answer.get("probabilities"), answered.answer.get("label_mass")
    if isinstance(probabilities, dict) and (sentences or isinstance(mass, float)):
        for label, share in sorted(probabilities.items(), key=lambda pair: -pair[1]):
            output.say(f"{share:.4f}  {label}")
        if mass is None:
            return
        output.say(f"label mass {mass:.3g}: the probability that one of the labels comes next")
        token = answered.answer.get("token")
        if isinstance(token, dict):
            output.say(f"the likeliest next token is {token['text']!r}")
    else:
        names = asker.kind.columns[:1]
        output.say(f"{names[0]}: {asker.kind.cells(answered.answer)[0]!r}")


def estimate(asker: RowAsker, rows: Iterator[Row], loaded: Loaded) -> None:
    """Print the numbers of rows and tokens, and estimate time and memory from a sample."""
    sample: list[Row] = []
    counted = count = bad = tokens = length = 0
    model = loaded.model
    for row in rows:
        count += 1
        prompt = asker.prompt(row)
        if isinstance(prompt, Exception):
            bad += 1
            continue
        length += len(prompt)
        if counted < _COUNTED and isinstance(model, Tokenizing):
            counted += 1
            tokens += len(model.encode(prompt))
        if len(sample) < _SAMPLE:
            sample.append(row)

    asker.answered(sample[:1], threading.Event())  # the first pass is slower
    start = time.perf_counter()
    _, cost = asker.answered(sample, threading.Event())
    seconds = time.perf_counter() - start
    good = count - bad
    facts: dict[str, object] = {
        "rows": count,
        "unreadable rows": bad,
        "prompt characters": length,
    }
    if counted:
        facts["prompt tokens"] = round(tokens / counted * good)
    if cost.asked:
        rate = cost.asked / seconds
        facts["rows/s in the sample"] = f"{rate:.1f} ({output.counted(cost.asked, 'row')})"
        facts["seconds"] = f"{good / rate:.0f}"
        facts["peak memory"] = output.human_size(model.metrics.peak_memory_bytes)
    for name, value in facts.items():
        output.write_text(f"{name}: {value}\n")
