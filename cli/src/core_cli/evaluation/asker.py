"""Rows that are items: run through the model, scored, counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core.errors import CoreError
from core_cli import output
from core_cli.evaluation.items import item_of
from core_cli.values import Answer, Answered, Cost, Kind
from core_cli.writing.answers import message
from core_tasks.agreement.gaps import error_text
from core_tasks.evaluation.asking import ALL, Asker, Speed
from core_tasks.evaluation.result import ItemResult
from core_tasks.evaluation.tally import Tally

if TYPE_CHECKING:
    from core.options import GenerateConfig
    from core_cli.loading import Loaded
    from core_cli.reading.row import Row
    from core_tasks.evaluation.items import Item, Names

_COLUMNS = ("prediction", "gold", "right", "sureness", "error")
_NAMES = (
    *("line", *_COLUMNS, "probabilities", "logprobs", "right_normalised", "output"),
    *("finish_reason", "tokens", "samples", "majority", "majority_right", "batch_sizes"),
    "among_examples",
)


def kind() -> Kind:
    """Return the kind of answer that an evaluation writes."""

    def values(answer: Answer) -> tuple[object, ...]:
        return (*(answer[name] for name in _COLUMNS[:-1]), message(answer))

    def failed(error: Exception) -> Answer:
        return ItemResult("", error=error).to_dict()

    return Kind(lambda result: result.to_dict(), failed, _COLUMNS, values, frozenset(_NAMES))


class ItemAsker:
    """An asker for blocks of rows that are items."""

    def __init__(self, loaded: Loaded, asker: Asker, names: Names, config: GenerateConfig) -> None:
        self.kind, self.backend = kind(), loaded.backend.name
        self._asker, self._names, self._config = asker, names, config

    def answered(
        self, block: Sequence[Row], cancel: threading.Event
    ) -> tuple[list[Answered], Cost]:
        """Return the rows with their scores, in order, and their cost."""
        items = [self._item(row) for row in block]
        sound = [item for item in items if not isinstance(item, CoreError)]
        before = _spent(self._asker.speeds.values())
        results = iter(self._asker.answered(sound, replace(self._config, cancel=cancel)))
        found = []
        for row, item in zip(block, items, strict=True):
            if isinstance(item, CoreError):
                found.append(Answered(row, self.kind.failed(item), item))
            else:
                result = next(results)
                found.append(Answered(row, self.kind.answer(result), result.error))
        after = _spent(self._asker.speeds.values())
        return found, Cost(len(sound), 0, *(b - a for a, b in zip(before, after, strict=True)))

    @property
    def variables(self) -> Mapping[str, object]:
        """The variables that the chat template was given for prompts until now."""
        return self._asker.variables

    def recall(self, block: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Do nothing: no score depends on earlier blocks."""

    def forget(self) -> None:
        """Do nothing."""

    def prompt(self, row: Row) -> str | Exception:
        """Return the prompt of a row, or the row's error."""
        item = self._item(row)
        if isinstance(item, CoreError):
            return item
        try:
            return self._asker.prompt(item)
        except CoreError as error:
            return error

    def _item(self, row: Row) -> Item | CoreError:
        try:
            return item_of(row, self._names)
        except CoreError as error:
            return error


def _spent(speeds: Any) -> tuple[int, int, int]:
    each = [*speeds]
    return (
        sum(speed.prompt_tokens for speed in each),
        sum(speed.cached_tokens for speed in each),
        sum(speed.tokens for speed in each),
    )


class Marks:
    """The scores of all items, for stderr and reports; ``speeds`` is called at the end."""

    key = "evaluation"

    def __init__(
        self, pass_at: Sequence[int] = (), speeds: Callable[[], Mapping[int, Speed]] = dict
    ) -> None:
        self.tally = Tally(pass_at)
        self._speeds = speeds

    def add(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Count the scores of these rows."""
        for answer in answers:
            self.tally.add(answer)

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics for a report; speeds are from this run only."""
        found = self.tally.to_dict()
        speeds = {_shown(size): speed.to_dict() for size, speed in self._speeds().items()}
        return {**found, "speed": speeds} if speeds else found

    def tell(self) -> None:
        """Print accuracy and speed on stderr."""
        found = self.to_dict()
        if found["accuracy"] is None:
            output.say("no item could be scored")
            return

        told = [share(found, "accuracy", "correct")]
        if "accuracy_normalised" in found:
            told.append(share(found, "accuracy_normalised", "normalised by choice length"))
        if "accuracy_of_majority" in found:
            told.append(share(found, "accuracy_of_majority", "majority of samples"))
        if "accuracy_of_others" in found:
            told.append(share(found, "accuracy_of_others", "without items that are examples"))
        for k, each in found.get("pass_at", {}).items():
            told.append(f"pass@{k}: {_percent(each['mean'], each['interval'])}")

        calibration = found["calibration_error"]
        if calibration is not None:
            brier = f", Brier {found['brier']:.3f}" if found["brier"] is not None else ""
            interval = found["calibration_error_interval"]
            told.append(f"{error_text(calibration, interval)}{brier}")
        for line in (*told, *self._of_sizes(found)):
            output.say(line)

    def _of_sizes(self, found: Mapping[str, Any]) -> list[str]:
        first, lines = True, []
        for size, speed in self._speeds().items():
            name = "all at once" if size == ALL else f"batch size {size}"
            told = [f"{name}: {_rate(speed.items, speed.seconds)} items/s"]
            if speed.tokens:
                told.append(f"{_rate(speed.tokens, speed.seconds)} tokens/s")
            if not first:
                again = found["batch_sizes"][str(size)]
                told.append(f"{_percent(again['accuracy'], None)} correct")
                told.append(f"{output.counted(again['other_answers'], 'answer')} changed")
            first = False
            lines.append(", ".join(told))
        return lines


def share(found: Mapping[str, Any], name: str, words: str) -> str:
    """Return a share with its interval as text."""
    return f"{words}: {_percent(found[name], found[f'{name}_interval'])}"


def _percent(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None:
        return "-"
    told = f"{100 * value:.1f} %"
    return told if not interval else f"{told} ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:.1f}" if seconds else "-"


def _shown(size: int) -> str:
    return "all" if size == ALL else str(size)
