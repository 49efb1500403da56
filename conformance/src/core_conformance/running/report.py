"""The report of a run as JSON.

It says which model it was: a name people know, and a checksum of its files.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import core
from core import PROTOCOL_VERSION
from core.registry import REGISTRY
from core.secret import is_secret
from core.system import outputs
from core_conformance.running.known import UsageError
from core_conformance.running.result import Result
from core_conformance.running.run import Run

REPORT = outputs.Kind(
    "a conformance report", re.compile(rb'\{\s*"verdict": "[^\n]*,\s*"certified": '), private=False
)


def model_name(path: str) -> str:
    """Return the file's or directory's name; ``org/name`` for one in the Hugging Face cache."""
    for folder in Path(path).parents:
        if folder.name.startswith("models--"):
            return folder.name.removeprefix("models--").replace("--", "/")
    return Path(path).name


def model_sha256(path: str) -> str | None:
    """Return the SHA-256 of a file.

    Of a directory, that of the lines which ``sha256sum`` prints for it.

    The lines are ``<digest>  <relative path>``, sorted by path (as bytes), of all files in it
    whose names do not start with a dot. None when something cannot be read.
    """
    root = Path(path)
    try:
        if root.is_file():
            return _digest(root)

        files = sorted(
            (file.relative_to(root).as_posix(), file)
            for file in root.rglob("*")
            if file.is_file() and not file.name.startswith(".")
        )
        lines = "".join(f"{_digest(file)}  {name}\n" for name, file in files)
    except OSError:
        return None
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest() if files else None


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Suite:
    """The suite and the contract that the backend was checked against."""

    version: str
    core_version: str
    protocol: int


@dataclass(frozen=True, slots=True)
class BackendUsed:
    """The backend, its origin, and its declared capabilities."""

    name: str
    distribution: str
    version: str
    protocol: int
    capabilities: tuple[str, ...]
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelUsed:
    """The model's name, and the checksum of `core_conformance.running.report`."""

    name: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Platform:
    """The platform on which a run took place."""

    system: str
    machine: str
    python: str
    cpus: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """All there is to say about a run. ``date`` is UTC; ``checks`` come by id.

    ``seed`` is that of the generated inputs.
    """

    verdict: str
    certified: bool
    date: str
    seconds: float
    seed: int
    suite: Suite
    backend: BackendUsed
    model: ModelUsed
    platform: Platform
    threads_left: tuple[str, ...]
    checks: tuple[Result, ...]


def report_of(run: Run, *, certify: bool = False, threads_left: tuple[str, ...] = ()) -> Report:
    """Return the report of a run. ``certified``: certification was requested and earned."""
    verdict = run.verdict()
    since = {check.id: check.since for check in run.checks}
    results = tuple(
        replace(r, seconds=round(r.seconds, 4), since=since[r.id]) for r in run.all_results()
    )

    return Report(
        verdict.text,
        certify and verdict.certifiable,
        datetime.now(UTC).isoformat(timespec="seconds"),
        round(sum(result.seconds for result in results), 3),
        run.target.effort.seed,
        Suite(_version("infercore-conformance"), core.__version__, PROTOCOL_VERSION),
        _backend(run),
        ModelUsed(model_name(run.target.model), model_sha256(run.target.model)),
        Platform(
            platform.platform(), platform.machine(), platform.python_version(), os.cpu_count()
        ),
        threads_left,
        results,
    )


def writable(*files: tuple[str | None, outputs.Kind]) -> None:
    """Raise `UsageError` for a file that may not be written: better now than after the run."""
    places = []
    for file, kind in files:
        if file is not None:
            with _refused(file):
                places.append(outputs.check(file, kind))
    if len(set(places)) < len(places):
        raise UsageError(
            f"Two outputs have the same name, {places[-1]}. Name a different file for each."
        )


def write(value: object, file: str, kind: outputs.Kind) -> None:
    """Write a value as indented JSON; raises `UsageError`."""
    write_bytes(encoded(value) + b"\n", file, kind)


def write_bytes(data: bytes, file: str, kind: outputs.Kind) -> None:
    """Write a file that the user requested; raises `UsageError`."""
    with _refused(file):
        outputs.write(file, data, kind)


@contextmanager
def _refused(file: str) -> Iterator[None]:
    try:
        yield
    except core.OutputError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from error


def encoded(value: object) -> bytes:
    """Return indented JSON; values that JSON cannot represent become text."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str))


def _backend(run: Run) -> BackendUsed:
    backend = run.backend
    entries = [entry for entry in REGISTRY.entries() if entry.name == run.target.backend]
    return BackendUsed(
        run.target.backend,
        entries[0].distribution if entries else "",
        entries[0].version if entries else "",
        backend.protocol,
        tuple(sorted(map(str, run.capabilities))),
        _shown(run.target.options),
    )


def _shown(options: Mapping[str, object]) -> dict[str, Any]:
    """Return the load options without secrets, which a report that is published must not hold."""
    return {name: "..." if is_secret(name) else value for name, value in options.items()}


def _version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"
