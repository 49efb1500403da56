"""Saboteurs of a stream as a whole: of its text, and of what came of it for JSON."""

from __future__ import annotations

from contextlib import suppress

from core_conformance.proof.registry import saboteur
from core_conformance.reference.stream import ReferenceStream, SubmittedStream


@saboteur("text-of-the-rest", "text() lacks what was read before")
class TextOfTheRest(ReferenceStream):
    def text(self) -> str:
        return "".join(token.text for token in self)


@saboteur("text-once", "text() of a submitted stream is empty at a second call")
class TextOnce(SubmittedStream):
    def text(self) -> str:
        return super().text() if self.finish_reason is None else ""


@saboteur("text-so-far", "text() reads one token, and no further")
class TextSoFar(ReferenceStream):
    def text(self) -> str:
        next(self, None)
        return str(super().to_dict()["text"])


@saboteur("text-in-peace", "text() of a stream that fails returns what came before the error")
class TextInPeace(ReferenceStream):
    def text(self) -> str:
        with suppress(Exception):
            return super().text()
        return str(self.to_dict()["text"])


@saboteur(
    "text-fails-once",
    "a stream that failed, and is asked for its text again, returns what came before the error",
)
class TextFailsOnce(ReferenceStream):
    def text(self) -> str:
        record = self.to_dict()
        return str(record["text"]) if record["error"] else super().text()


@saboteur("error-as-it-is", "to_dict() holds the error itself")
class ErrorAsItIs(ReferenceStream):
    def to_dict(self) -> dict[str, object]:
        return {**super().to_dict(), "error": self._raised}


@saboteur("error-untold", "to_dict() never tells an error")
class ErrorUntold(ReferenceStream):
    def to_dict(self) -> dict[str, object]:
        return {**super().to_dict(), "error": None}
