"""Asking a model about a block of rows: equal prompts once, a bad row only its own error."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from operator import add
from typing import Protocol

from core.cli.reading.row import Row
from core.cli.rows.prompts import PromptMaker
from core.cli.writing.answers import Answer, Kind, Result
from core.errors import CoreError, GenerationCancelled
from core.options import GenerateConfig
from core.protocols import TextModel
from core.types import GenerateMetrics


@dataclass(frozen=True, slots=True)
class Answered:
    """One row, its answer, and why there is none."""

    row: Row
    answer: Answer
    error: Exception | None = None

    @property
    def cancelled(self) -> bool:
        """Whether it was stopped before it was done."""
        return isinstance(self.error, GenerationCancelled)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a block took: prompts that were asked, rows that an equal one answered, tokens."""

    asked: int = 0
    equal: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(add, astuple(self), astuple(other)))


class Known:
    """Answers by their prompts, as many as fit into some megabytes; what came first goes first.

    What is kept follows from the rows alone, so that a job that goes on finds what it had.
    """

    _ENTRY = 2000  # bytes of an answer with a few labels, and of the entry itself

    def __init__(self, largest: int = 64 * 2**20) -> None:
        # Of a plain dictionary, the first key is looked for behind all that were deleted.
        self._answers: OrderedDict[Hashable, Answer] = OrderedDict()
        self._bytes, self._largest = 0, largest

    def get(self, key: Hashable) -> Answer | None:
        """The answer to an equal prompt."""
        return self._answers.get(key)

    def put(self, prompts: Mapping[Hashable, Answer]) -> None:
        """Keep answers that are not there yet."""
        self._answers.update(prompts)
        self._bytes += sum(map(_size, prompts))
        while self._bytes > self._largest:
            oldest, _ = self._answers.popitem(last=False)
            self._bytes -= _size(oldest)


Ask = Callable[[Sequence[str], GenerateConfig], Sequence[Result]]


class RowAsker(Protocol):
    """What answers blocks of rows, and how its answers are written."""

    kind: Kind

    @property
    def backend(self) -> str:
        """The name of the backend."""
        ...

    def answered(
        self, block: Sequence[Row], cancel: threading.Event
    ) -> tuple[list[Answered], Cost]:
        """The rows of a block with their answers, in order, and what they cost."""
        ...

    def recall(self, block: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Know again what an earlier run of the job knew behind this block."""
        ...

    def forget(self) -> None:
        """Know answers within a block only."""
        ...

    def prompt(self, row: Row) -> str | Exception:
        """The prompt of a row, or what is wrong with the row."""
        ...

    @property
    def variables(self) -> Mapping[str, object]:
        """The variables that the chat template was given for prompts until now."""
        ...


class Asker:
    """Answers blocks of rows. ``known`` is None where equal prompts are asked again."""

    def __init__(
        self,
        model: TextModel,
        ask: Ask,
        kind: Kind,
        maker: PromptMaker,
        config: GenerateConfig,
        known: Known | None = None,
    ) -> None:
        self.kind = kind
        self._model, self._ask, self._maker = model, ask, maker
        self._config, self._known = config, known

    def answered(
        self, block: Sequence[Row], cancel: threading.Event
    ) -> tuple[list[Answered], Cost]:
        """The rows of a block with their answers, in order, and what they cost."""
        prompts = [self.prompt(row) for row in block]
        if self._known is None:
            answers = iter(self._asked([p for p in prompts if isinstance(p, str)], cancel))
            found = [
                Answered(row, *next(answers)) if isinstance(prompt, str) else self._bad(row, prompt)
                for row, prompt in zip(block, prompts, strict=True)
            ]
            asked = sum(isinstance(prompt, str) for prompt in prompts)
            return found, self._cost(asked, 0)

        # Each prompt that nothing is known of is asked once.
        unknown = {
            _key(prompt): prompt
            for prompt in prompts
            if isinstance(prompt, str) and self._known.get(_key(prompt)) is None
        }
        new = dict(zip(unknown, self._asked(list(unknown.values()), cancel), strict=True))
        found = [self._found(row, prompt, new) for row, prompt in zip(block, prompts, strict=True)]
        self._known.put({key: answer for key, (answer, error) in new.items() if error is None})
        equal = sum(isinstance(prompt, str) for prompt in prompts) - len(unknown)
        return found, self._cost(len(unknown), equal)

    def recall(self, block: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Know again what an earlier run of the job knew behind this block."""
        if self._known is None:
            return
        new: dict[Hashable, Answer] = {}
        for row, answer in zip(block, answers, strict=True):
            prompt = self.prompt(row)
            if isinstance(prompt, Exception) or answer["error"] is not None:
                continue
            if self._known.get(_key(prompt)) is None:
                new.setdefault(_key(prompt), answer)
        self._known.put(new)

    @property
    def backend(self) -> str:
        """The name of the backend."""
        return self._maker.backend

    @property
    def variables(self) -> Mapping[str, object]:
        """The variables that the chat template was given for prompts until now."""
        return self._maker.variables

    def forget(self) -> None:
        """Know answers within a block only."""
        if self._known is not None:
            self._known = Known(largest=0)

    def prompt(self, row: Row) -> str | Exception:
        """The prompt of a row, or what is wrong with the row."""
        if row.error is not None:
            return row.error
        try:
            return self._maker.prompt(row)
        except CoreError as error:  # a chat template that refuses this row
            return error

    def _asked(
        self, prompts: list[str], cancel: threading.Event
    ) -> list[tuple[Answer, Exception | None]]:
        if not prompts:
            return []
        results = self._ask(prompts, replace(self._config, cancel=cancel))
        return [(self.kind.answer(result), result.error) for result in results]

    def _found(
        self,
        row: Row,
        prompt: str | Exception,
        new: Mapping[Hashable, tuple[Answer, Exception | None]],
    ) -> Answered:
        if not isinstance(prompt, str):
            return self._bad(row, prompt)
        assert self._known is not None
        known = self._known.get(_key(prompt))
        return Answered(row, known) if known is not None else Answered(row, *new[_key(prompt)])

    def _bad(self, row: Row, error: Exception) -> Answered:
        return Answered(row, self.kind.failed(error), error)

    def _cost(self, asked: int, equal: int) -> Cost:
        spent = self._model.metrics if asked else GenerateMetrics()
        return Cost(
            *(asked, equal, spent.prompt_tokens, spent.cached_prompt_tokens),
            spent.generated_tokens,
        )


def _key(prompt: str) -> Hashable:
    """What equal prompts have in common; one that was rendered is no equal of a plain one."""
    return prompt if type(prompt) is str else (prompt,)


def _size(key: Hashable) -> int:
    return len(key if isinstance(key, str) else key[0]) + Known._ENTRY  # type: ignore[index]
