"""A span whose logits are looked at once and not gone on from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core_llama_cpp.session import Logits

Read = Callable[[int, Logits], None]


def _nothing(place: int, logits: Logits) -> None:
    """For tokens that only have to be in the cache."""


class Reading:
    """Tokens of a sequence (`core_llama_cpp.spans.Span`), and who looks at their logits.

    ``reads``: the last tokens' logits go to ``to``, with their places in ``ids``. ``error``: what
    went wrong with it.
    """

    def __init__(
        self,
        ids: Sequence[int],
        position: int,
        sequence: int,
        reads: int = 1,
        to: Read = _nothing,
    ) -> None:
        self.ids, self.position, self.sequence, self.reads = ids, position, sequence, reads
        self._to = to
        self.error: Exception | None = None

    def read(self, place: int, logits: Logits) -> None:
        """Look at the logits behind ``ids[place]``."""
        self._to(place, logits)

    def fail(self, error: Exception) -> None:
        """It could not be computed or read."""
        self.error = error
