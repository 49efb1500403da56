"""GGUF files whose checksum is known, and how the checksum of a source is verified."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConversionError


@dataclass(frozen=True, slots=True)
class KnownSource:
    """A GGUF file by name, size in bytes and SHA-256; ``directory`` is its converted name."""

    file_name: str
    size: int
    sha256: str
    directory: str


SMOLLM2 = KnownSource(
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    98_362_432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "smollm2-135m-instruct",
)
GEMMA3 = KnownSource(
    "gemma-3-270m-q4_k_m.gguf",
    253_113_024,
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    "gemma-3-270m",
)
KNOWN_SOURCES = (SMOLLM2, GEMMA3)


def verified_sha256(path: Path, expected: str | None = None) -> str:
    """The file's SHA-256 in lower-case hex.

    Raises `ConversionError` when it is not the expected one. Without an expectation, a file that
    has both name and size of a known source must be that source.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    wanted = _known_sha256(path) or digest if expected is None else expected.lower()
    if digest != wanted:
        raise ConversionError(
            f"{path} has SHA-256 {digest}, expected {wanted}. The file is damaged or another "
            "build: fetch it again, or state the checksum you expect (--sha256, expect_sha256)."
        )
    return digest


def _known_sha256(path: Path) -> str | None:
    found = (path.name, path.stat().st_size)
    known = (source for source in KNOWN_SOURCES if (source.file_name, source.size) == found)
    return next((source.sha256 for source in known), None)
