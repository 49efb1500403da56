"""Blank texts of a stream, which are errors of their rows and never reach the model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from core.errors import EmptyPromptError
from core.kit.support import blank_error, checked_prompts

R = TypeVar("R")


def without_blank_texts(
    texts: Iterable[str],
    classify: Callable[[Iterator[str]], Iterator[R]],
    failed: Callable[[EmptyPromptError], R],
    operation: str,
) -> Iterator[R]:
    """Yield a result for each text in order, from ``classify`` or, of a blank one, ``failed``."""
    errors: deque[EmptyPromptError | None] = deque()  # of each text that was read

    def filled() -> Iterator[str]:
        for index, text in enumerate(texts):
            checked_prompts(operation, [text], index)
            errors.append(blank_error(text))
            if errors[-1] is None:
                yield text

    for result in classify(filled()):
        while (error := errors.popleft()) is not None:
            yield failed(error)
        yield result
    yield from map(failed, filter(None, errors))
