"""``hidden_states``: the input of the LM head at each prompt's last token.

A pass that returns hidden states returns those of every token, and has room for few. So all tokens
of a prompt except the last run as usual, and the last ones of all prompts in a separate pass.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from core.types import HiddenResult
from core_runtime.request import own_error
from core_runtime.rows import PromptRow
from core_runtime.sequences.passes import Branch
from core_runtime.sequences.sampling import check_state
from core_runtime.sequences.session import Logits


class HiddenQuestion:
    """The `questions.RowQuestion` of the hidden state at the end of one prompt."""

    reads = 0

    def __init__(self, row: PromptRow, layers: tuple[int, ...]) -> None:
        self.row, self._layers = row, layers
        self.ids, self._last = row.ids[:-1], row.ids[-1:]
        self.longest, self.shareable = len(self._last), len(self.ids)
        self.error: Exception | None = None
        self._state: array[float] | None = None

    def read(self, place: int, logits: Logits) -> None:
        """Ignore logits, which are not read."""

    def branches(self, most: int) -> Sequence[Branch]:
        """Return the last token, once."""
        if self._state is not None:
            return ()
        return [Branch(tuple(self._last), 1, self._look, hidden=self._layers)]

    def fail(self, error: Exception) -> None:
        """Record the error of a prompt that could not be computed; the first one counts."""
        self.error = self.error or own_error(error)

    def result(self) -> HiddenResult:
        """Return the state, or the error that ended it."""
        if self.error is not None:
            return HiddenResult(error=self.error)
        return HiddenResult(self._layers, self._state)

    def _look(self, place: int, state: Logits) -> None:
        check_state(state)
        self._state = array("f", state.tobytes())
