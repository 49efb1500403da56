"""The fake's hidden states: the words of a prompt, hashed to a few numbers.

So texts that share words have similar states, and a classifier on them learns in a test as it would
from a model: slowly, and not everything.
"""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Sequence

from core.errors import RequestError
from core.kit.base import RequestClock
from core.testing.generation import Engine
from core.types import HiddenResult

LAYERS, SIZE = 1, 16
"""The number of layers, and of the numbers in a state."""


def read(engine: Engine, prompt: str, layers: Sequence[int], clock: RequestClock) -> HiddenResult:
    """Return the states of one prompt, or its error."""
    try:
        clock.check()
        ids = engine.ids(prompt)
    except RequestError as error:
        return HiddenResult(error=error)

    states = array("f")
    for layer in layers:
        states.extend(_of_words(prompt) if layer else _of_token(ids[-1]))
    return HiddenResult(tuple(layers), states)


def _of_token(token: int) -> list[float]:
    """Return the state before the only layer, of the prompt's last token alone."""
    return [float(place == token % SIZE) for place in range(SIZE)]


def _of_words(prompt: str) -> list[float]:
    """Return the state after the layer: each word of the prompt counts in one of the numbers.

    Its length is 1, or 0 without any word.
    """
    values = [0.0] * SIZE
    for word in prompt.split():
        values[zlib.crc32(word.encode()) % SIZE] += 1.0
    length = math.hypot(*values) or 1.0
    return [value / length for value in values]
