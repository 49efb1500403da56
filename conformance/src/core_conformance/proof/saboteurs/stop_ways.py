"""Saboteurs that search for stop strings otherwise than in the whole text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import Generation
from core_conformance.reference.vocabulary import SPECIAL_TEXTS, Detokenizer

_WINDOW = 24  # characters


@saboteur("stop-window", "a stop string of more than 24 characters is never found")
class StopWindow(Generation):
    """Looks at the end of the text."""

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        stops = [stop for stop in config.stop if len(stop) <= _WINDOW]
        self.assembler = TokenAssembler(Detokenizer(), stops, SPECIAL_TEXTS)


class ListOrder:
    """Finds the first of the list that is in the text."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops, self.held, self.matched = [stop for stop in stops if stop], "", ""

    def feed(self, text: str) -> str:
        """Return the text that no match can include any more."""
        if self.matched:
            return ""
        self.held += text
        for stop in self.stops:
            if stop in self.held:
                self.matched = stop
                return self.finish().partition(stop)[0]
        ends = (stop[:end] for stop in self.stops for end in range(1, len(stop)))
        size = max((len(end) for end in ends if self.held.endswith(end)), default=0)
        place = len(self.held) - size
        text, self.held = self.held[:place], self.held[place:]
        return text

    def finish(self) -> str:
        """Return the text that is held."""
        text, self.held = self.held, ""
        return text


@saboteur(
    "stops-in-list-order",
    "of two stop strings that one token completes the first of the list ends the text",
)
class StopsInListOrder(Generation):
    """Searches for one stop string after another."""

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        reading: Any = self.assembler._plain
        reading.matcher = ListOrder(config.stop)
