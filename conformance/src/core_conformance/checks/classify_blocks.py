"""Checks of classify_iter over more prompts than it reads at once: its seed and its metrics."""

from __future__ import annotations

from typing import Any, cast

from core.protocols import Capability
from core_conformance.checking.check import check, must
from core_conformance.checking.sizes import rows
from core_conformance.checking.subject import Subject

_ROWS = 150  # more than a block of any size that pays


@check(
    "metrics.classify-iter",
    "The metrics of classify_iter that was read to its end MUST count all of its prompts",
    Capability.CLASSIFY_STREAMING,
    Capability.CLASSIFY,
    broad=True,
)
def every_block_counts(subject: Subject) -> None:
    prompts, model = rows(_ROWS), cast("Any", subject.model)
    model.classify(prompts)
    whole = model.metrics
    list(model.classify_iter(iter(prompts)))
    streamed = model.metrics
    must(whole.prompt_tokens > 0, "classify counts no prompt_tokens")
    must(
        streamed.prompt_tokens == whole.prompt_tokens,
        f"classify_iter of {_ROWS} prompts counts {streamed.prompt_tokens} prompt_tokens, and "
        f"classify {whole.prompt_tokens}",
    )
