"""Base class of token streams: their text, their state for JSON, their ``repr``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from core.frames import without_frames
from core.records import error_record
from core.types import FinishReason, GenerateMetrics, Token


class TokenStreamBase(Iterator[Token]):
    """A `TokenStream` except for the backend-specific parts: the abstract members below.

    Tokens come from `next_token`, through ``next()``, which records their text.
    """

    def __init__(self) -> None:
        # A token in constant time and no object for each. Not a StringIO: a stream that is used
        # while the interpreter ends would find it closed.
        self._given_text = bytearray()
        self._raised: Exception | None = None

    @abstractmethod
    def next_token(self) -> Token:
        """Return the next token. Raises the error that ends the stream, then StopIteration."""

    @property
    @abstractmethod
    def finish_reason(self) -> FinishReason | None:
        """Reason why the stream ended; None until it has."""

    @property
    @abstractmethod
    def metrics(self) -> GenerateMetrics:
        """Cost of this stream; final once it has ended."""

    @abstractmethod
    def close(self) -> None:
        """Stop the request; may be called at any time and more than once."""

    def __next__(self) -> Token:
        try:
            token = self.next_token()
        except StopIteration:
            raise
        except Exception as error:
            self._raised = without_frames(error)
            raise
        self._given_text += token.text.encode("utf-8", "surrogatepass")
        return token

    def text(self) -> str:
        """Return the full text, including tokens that were read before. See `TokenStream`."""
        if self._raised is not None:
            raise without_frames(self._raised)
        for _ in self:
            pass
        return self._text()

    def _text(self) -> str:
        return self._given_text.decode("utf-8", "surrogatepass")

    def to_dict(self) -> dict[str, object]:
        """Return the state of the stream for JSON. See `TokenStream`."""
        return {
            "text": self._text(),
            "finish_reason": self.finish_reason,
            "metrics": self.metrics.to_dict(),
            "error": error_record(self._raised),
        }

    def __repr__(self) -> str:
        """Return its state; never the text, which may be private."""
        return f"<{type(self).__name__}: {self._state()}>"

    def _state(self) -> str:
        size = len(self._text())
        read = "1 character" if size == 1 else f"{size} characters"
        if self._raised is not None:
            return f"failed with {type(self._raised).__name__} after {read}"
        if self.finish_reason is not None:
            return f"ended with {self.finish_reason!r}, {read}"
        if size:
            return f"{read} so far; text() reads the rest"
        return "not read yet; iterate it, or call text()"
