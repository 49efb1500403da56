"""Rows of items on their way through a run: asked, marked, counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core.agreement.gaps import error_text
from core.cli import output
from core.cli.evaluation.items import item_of
from core.cli.rows.bulk import Answered, Cost
from core.cli.writing.answers import Answer, Kind, message
from core.errors import CoreError
from core.evaluation.asking import ALL, Asker, Speed
from core.evaluation.result import ItemResult
from core.evaluation.tally import Tally

if TYPE_CHECKING:
    from core.cli.loading import Loaded
    from core.cli.reading.row import Row
    from core.evaluation.items import Item, Names
    from core.options import GenerateConfig

_COLUMNS = ("prediction", "gold", "right", "sureness", "error")
_NAMES = (
    *("line", *_COLUMNS, "probabilities", "logprobs", "right_normalised", "output"),
    *("finish_reason", "tokens", "samples", "majority", "majority_right", "batch_sizes"),
    "among_examples",
)


def kind() -> Kind:
    """How the marks are written."""

    def values(answer: Answer) -> tuple[object, ...]:
        return (*(answer[name] for name in _COLUMNS[:-1]), message(answer))

    def failed(error: Exception) -> Answer:
        return ItemResult("", error=error).to_dict()

    return Kind(lambda result: result.to_dict(), failed, _COLUMNS, values, frozenset(_NAMES))


class ItemAsker:
    """Answers blocks of rows, each of which is an item."""

    def __init__(self, loaded: Loaded, asker: Asker, names: Names, config: GenerateConfig) -> None:
        self.kind, self.backend = kind(), loaded.backend.name
        self._asker, self._names, self._config = asker, names, config

    def answered(
        self, block: Sequence[Row], cancel: threading.Event
    ) -> tuple[list[Answered], Cost]:
        """The rows with their marks, in order, and what they cost."""
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
        """Nothing: no mark depends on those of earlier blocks."""

    def forget(self) -> None:
        """Nothing."""

    def prompt(self, row: Row) -> str | Exception:
        """The prompt of a row, or what is wrong with it."""
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
    """The marks of all items, told and reported; ``speeds`` are asked for at the end."""

    key = "evaluation"

    def __init__(
        self, pass_at: Sequence[int] = (), speeds: Callable[[], Mapping[int, Speed]] = dict
    ) -> None:
        self.tally = Tally(pass_at)
        self._speeds = speeds

    def add(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Count the marks of these rows."""
        for answer in answers:
            self.tally.add(answer)

    def to_dict(self) -> dict[str, Any]:
        """All figures for a report; the speeds are those of this run."""
        found = self.tally.to_dict()
        speeds = {_shown(size): speed.to_dict() for size, speed in self._speeds().items()}
        return {**found, "speed": speeds} if speeds else found

    def tell(self) -> None:
        """Say on stderr how many are right, and how fast."""
        found = self.to_dict()
        if found["accuracy"] is None:
            output.say("no item could be marked")
            return

        told = [share(found, "accuracy", "right")]
        if "accuracy_normalised" in found:
            told.append(share(found, "accuracy_normalised", "by length of the choices"))
        if "accuracy_of_majority" in found:
            told.append(share(found, "accuracy_of_majority", "what most samples say"))
        if "accuracy_of_others" in found:
            told.append(share(found, "accuracy_of_others", "of items that are no examples"))
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
                told.append(f"{_percent(again['accuracy'], None)} right")
                told.append(f"{output.counted(again['other_answers'], 'answer')} another")
            first = False
            lines.append(", ".join(told))
        return lines


def share(found: Mapping[str, Any], name: str, words: str) -> str:
    """A share with its interval for people."""
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
