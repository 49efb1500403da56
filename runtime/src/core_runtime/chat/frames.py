"""Frames on the socket between a program and the process that renders its chat templates.

A frame is one byte for its kind, eight for its length, and a text; requests are JSON.
"""

from __future__ import annotations

READY, ASKED, PROMPT, FAILED, NO_MEMORY = b"R", b"A", b"P", b"F", b"M"
HEAD = 9
"""Bytes before a frame's text."""
MAX_MEMORY_BYTES = 512 * 1024**2
"""The memory that the process may use in addition to its interpreter's."""


def framed(kind: bytes, text: bytes = b"") -> bytes:
    """Return one frame."""
    return kind + len(text).to_bytes(HEAD - 1, "big") + text


def encoded(text: str) -> bytes:
    """Return a text as bytes, lone surrogates too."""
    return text.encode(errors="surrogatepass")


def decoded(text: bytes) -> str:
    """Return the text of the bytes."""
    return text.decode(errors="surrogatepass")
