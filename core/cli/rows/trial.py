"""Before a job: its first prompt as the model reads it, and what the job would cost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from core.cli import output
from core.cli.rows.joining import joined
from core.extensions import Tokenizing

if TYPE_CHECKING:
    from core.cli.loading import Loaded
    from core.cli.reading.row import Row
    from core.cli.rows.bulk import RowAsker
    from core.options import GenerateConfig

_SAMPLE, _COUNTED = 32, 1000


def show(
    asker: RowAsker,
    rows: Iterator[Row],
    shown: Callable[[str], str] = str,
    labelled: GenerateConfig | None = None,
) -> None:
    """Write the first row's prompt, how labels are joined to it, and what the model says next.

    ``labelled`` has the labels. Raises what kept the row from being a prompt.
    """
    row = next(rows, None)
    if row is None:
        output.warn("there is no row to show")
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
        output.say(joined(read, labelled))
    probabilities, mass = answered.answer.get("probabilities"), answered.answer.get("label_mass")
    if isinstance(probabilities, dict) and isinstance(mass, float):
        for label, share in sorted(probabilities.items(), key=lambda pair: -pair[1]):
            output.say(f"{share:.4f}  {label}")
        output.say(f"label mass {mass:.3g}: the probability that any of the labels comes next")
        token = answered.answer.get("token")
        if isinstance(token, dict):
            output.say(f"the model itself would say {token['text']!r} next")
    else:
        names = asker.kind.columns[:1]
        output.say(f"{names[0]}: {asker.kind.cells(answered.answer)[0]!r}")


def estimate(asker: RowAsker, rows: Iterator[Row], loaded: Loaded) -> None:
    """Say how many rows and tokens there are, and reckon time and memory by a sample."""
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
        "rows that cannot be read": bad,
        "characters of prompts": length,
    }
    if counted:
        facts["tokens of prompts"] = round(tokens / counted * good)
    if cost.asked:
        rate = cost.asked / seconds
        facts["rows/s of the sample"] = f"{rate:.1f} ({output.counted(cost.asked, 'row')})"
        facts["seconds"] = f"{good / rate:.0f}"
        facts["peak memory"] = output.human_size(model.metrics.peak_memory_bytes)
    for name, value in facts.items():
        output.write_text(f"{name}: {value}\n")
