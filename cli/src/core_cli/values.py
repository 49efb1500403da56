"""Values that rows, answers and output files share: answers, their kinds, their cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from operator import add
from typing import TYPE_CHECKING, Any

from core.errors import GenerationCancelled
from core.options import GenerateConfig
from core.types import BatchResult, ClassifyResult
from core_cli.reading.row import Row

if TYPE_CHECKING:
    from core.protocols import Capability
    from core_cli.loading import Loaded
    from core_tasks.task import Mode

Answer = dict[str, object]
Result = ClassifyResult | BatchResult
UNSURE = "unsure"
CELLS = "cells"
"""The key for the cells of an answer read back from a table, which has nothing else."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of answer, and how it is written.

    ``answer`` turns a result into an answer, ``failed`` the error of a row. ``columns`` are the
    columns of a table, and ``values`` returns the cells, numbers as numbers. ``names`` are all
    fields reserved in an output row. ``counted`` returns the answer as the summary counts it.
    """

    answer: Callable[[Any], Answer]
    failed: Callable[[Exception], Answer]
    columns: tuple[str, ...]
    values: Callable[[Answer], tuple[object, ...]]
    names: frozenset[str]
    counted: Callable[[Answer], Answer] = lambda answer: answer

    def cells(self, answer: Answer) -> tuple[object, ...]:
        """Return the cells of an answer, or the cells it was read from."""
        cells = answer.get(CELLS)
        return cells if isinstance(cells, tuple) else self.values(answer)


@dataclass(frozen=True, slots=True)
class Answered:
    """A row with its answer or its error."""

    row: Row
    answer: Answer
    error: Exception | None = None

    @property
    def cancelled(self) -> bool:
        """True if the row was cancelled before it was done."""
        return isinstance(self.error, GenerationCancelled)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a block: prompts run, rows answered by a duplicate, tokens."""

    asked: int = 0
    equal: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(add, astuple(self), astuple(other)))


Ask = Callable[[Sequence[str], GenerateConfig], Sequence[Result]]
Decide = Callable[[Sequence[str], GenerateConfig], Any]
"""Texts in, and a `core_tasks.Decision` for each out."""


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a task or head file.

    ``content`` identifies all that the answers depend on, ``prompt`` returns a text's prompts as
    one text, ``around`` the longest of them, and
    ``decide`` runs a loaded model; it raises for a model that the file is not for, before any work.
    ``labelled`` has the labels, and how they are joined to a prompt; None without labels.
    """

    labels: tuple[str, ...]
    mode: Mode
    level: str
    threshold: float | None
    needed: Capability
    content: str
    prompt: Callable[[str], str]
    around: Callable[[str], str]
    decide: Callable[[Loaded], Decide]
    labelled: GenerateConfig | None = None
