"""The GGUF file to convert: its path, and its checksum if it is a known one."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from core.errors import ConversionError, InvalidModelError, ModelNotFoundError
from core.models.discovery import discover
from core.models.locating import locate


def gguf_of(model: str | os.PathLike[str]) -> Path:
    """Return the GGUF file of a model.

    ``model`` is a file, a directory with one, or a name listed by `discover`.

    Raises `ModelNotFoundError`, and `InvalidModelError` for a directory with several.
    """
    location = locate(model)
    if not os.path.isdir(location):
        return Path(location)
    paths = [entry.path for entry in discover(location, 0) if entry.format == "gguf"]
    if len(paths) == 1:
        return Path(paths[0])
    if paths:
        listed = "".join(f"\n  {path}" for path in paths)
        raise InvalidModelError(f"{location} contains several models. Pass one of them:{listed}")
    raise ModelNotFoundError(
        f"No GGUF file found in {location}; convert turns GGUF files into safetensors. Pass a "
        "GGUF file."
    )


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
    """Return the file's SHA-256 in lower-case hex.

    Raises `ConversionError` if it is not the expected one. Without ``expected``, a file with the
    name and size of a known source must be that source.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    wanted = _known_sha256(path) or digest if expected is None else expected.lower()
    if digest != wanted:
        raise ConversionError(
            f"{path} has SHA-256 {digest}, expected {wanted}. The file is damaged or a different "
            "build: download it again, or pass the checksum you expect (--sha256, expect_sha256)."
        )
    return digest


def _known_sha256(path: Path) -> str | None:
    key = (path.name, path.stat().st_size)
    known = (source for source in KNOWN_SOURCES if (source.file_name, source.size) == key)
    return next((source.sha256 for source in known), None)
