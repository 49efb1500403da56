"""Saboteurs that one bad prompt gets the better of."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import (
    EmptyPromptError,
    PromptTooLongError,
    RequestError,
)
from core.options import GenerateConfig
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.engine import Engine
from core_conformance.reference.vocabulary import encode


@saboteur("lengths-swapped", "PromptTooLongError has its two numbers in the wrong order")
class LengthsSwapped(Engine):
    """Raises `PromptTooLongError` with (limit, length) for (length, limit)."""

    def check_length(self, length: int) -> None:
        """Raises `PromptTooLongError`, its two numbers swapped."""
        try:
            super().check_length(length)
        except PromptTooLongError as error:
            raise PromptTooLongError(error.limit, error.length) from None


@saboteur("long-prompts-cut", "a prompt longer than the context is cut in silence")
class LongPromptsCut(Engine):
    """Keeps the end of a prompt, as if that alone counted."""

    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the last ids of a prompt, as many as the context holds."""
        try:
            return super().prompt_ids(prompt)
        except PromptTooLongError as error:
            return encode(prompt)[-error.limit :]


@saboteur("one-row-fails-all", "an error of one prompt is raised for the whole batch")
class OneRowFailsAll(Batch):
    """Checks all prompts first, and raises the error of the first bad one."""

    def __init__(self, engine: Engine, prompts: Sequence[str], config: GenerateConfig) -> None:
        super().__init__(engine, prompts, config)
        for error in self.errors.values():
            raise error


@saboteur("empty-prompt-begins", "an empty prompt is continued from BOS alone")
class EmptyPromptBegins(Engine):
    """Continues an empty prompt, for the BOS before it is a token."""

    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the ids of a prompt; of an empty one, the BOS alone."""
        try:
            return super().prompt_ids(prompt)
        except EmptyPromptError:
            return encode(prompt)


@saboteur("surrogate-escapes", "a lone surrogate raises what str.encode raises")
class SurrogateEscapes(Engine):
    """Passes lone surrogates to str.encode."""

    def prompt_ids(self, prompt: str) -> list[int]:
        """Raises UnicodeEncodeError for a lone surrogate."""
        try:
            return super().prompt_ids(prompt)
        except RequestError:
            prompt.encode()
            raise
