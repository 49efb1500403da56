"""A saboteur that reads a prompt's last chunk to the end, whatever comes."""

from __future__ import annotations

import time
from collections.abc import Iterator

from core.types import Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.stream import ReferenceStream

_LAST_CHUNK = 0.3  # seconds
_MANY = 600  # tokens


@saboteur(
    "deaf-behind-the-last-chunk",
    "a cancel that comes while the last chunk of a prompt is read is heard after the first token",
)
class DeafBehindTheLastChunk(ReferenceStream):
    """Looks before each chunk, and before each step but the first."""

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        """Yields the tokens of a row; the last chunk of a long prompt takes its time."""
        engine = self.engine
        with engine.slots.taken(lambda: self._check(row)), engine.running([row]):
            engine.prefill(row, meter)
            if len(row.prompt) > _MANY:
                time.sleep(_LAST_CHUNK)
            while row.reason is None:
                yield from engine.step([row], meter)[0]
                self._check(row)
