"""What is asked of prompts that are read and not continued, and what that takes of a context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from core_llama_cpp.reading import Read
from core_llama_cpp.session import Logits


class Branch(NamedTuple):
    """Tokens behind a question's; the logits of the last ``reads`` of them go to ``to``."""

    ids: tuple[int, ...]
    reads: int
    to: Read


class Question(Protocol):
    """A prompt, and what is read of it."""

    error: Exception | None

    @property
    def ids(self) -> Sequence[int]:
        """The tokens."""
        ...

    @property
    def reads(self) -> int:
        """How many tokens' logits are read: the last ones'."""
        ...

    def read(self, place: int, logits: Logits) -> None:
        """Take the logits behind a token: the last ``reads`` of ``ids``, in order."""
        ...

    def branches(self) -> Sequence[Branch]:
        """What is asked behind the last of the tokens, once they were read."""
        ...

    def fail(self, error: Exception) -> None:
        """It could not be computed."""
        ...


@dataclass(frozen=True, slots=True)
class Need:
    """What a question takes: ``tokens`` of its own, and ``behind`` them its longest branch."""

    tokens: int
    behind: int

    @classmethod
    def of(cls, question: Question, shared: int) -> Need:
        """Behind a beginning of so many tokens."""
        longest = max((len(branch.ids) for branch in question.branches()), default=0)
        return cls(len(question.ids) - shared, longest)

    @property
    def cells(self) -> int:
        """For itself and one branch at a time."""
        return self.tokens + self.behind

    @property
    def sequences(self) -> int:
        """Its own, one for a branch, and one for the shared beginning."""
        return 3
