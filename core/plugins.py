"""Plugins: the entry points of the installed ones, and facts about the known ones.

Entry points are read from metadata so that one broken distribution hides only itself:
``importlib.metadata.entry_points()`` raises for all groups if any installed ``entry_points.txt`` is
malformed, and indexing it by a doubled name silently takes the first. Format:
https://packaging.python.org/en/latest/specifications/entry-points/
"""

from __future__ import annotations

import difflib
import platform
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.errors import described

if TYPE_CHECKING:  # at run time it costs tens of milliseconds, and only `read_group` needs it
    from importlib.metadata import Distribution


@dataclass(frozen=True, slots=True)
class EntryPointRecord:
    """One line of an ``entry_points.txt``; nothing is imported before ``load()``."""

    name: str
    group: str
    value: str
    distribution: str
    version: str

    def load(self) -> object:
        """Import the module and return the object. Raises whatever the module raises."""
        from importlib.metadata import EntryPoint

        return EntryPoint(name=self.name, value=self.value, group=self.group).load()


@dataclass(frozen=True, slots=True)
class EntryPointFailure:
    """A distribution whose entry points could not be read, and the error."""

    distribution: str
    error: Exception


def read_group(group: str) -> tuple[tuple[EntryPointRecord, ...], tuple[EntryPointFailure, ...]]:
    """Return all entry points of a group, sorted by name and distribution, and the failures.

    Of several copies of one distribution the first on ``sys.path`` counts, as for imports.
    """
    from importlib.metadata import distributions

    records: list[EntryPointRecord] = []
    failures: list[EntryPointFailure] = []
    seen: set[str] = set()
    for distribution in distributions():
        try:
            records += _read(distribution, group, seen)
        except Exception as error:  # noqa: BLE001 - metadata is foreign input of any shape
            failures.append(EntryPointFailure(_label(distribution), error))
    records.sort(key=lambda record: (record.name, record.distribution, record.value))
    return tuple(records), tuple(failures)


def _read(distribution: Distribution, group: str, seen: set[str]) -> list[EntryPointRecord]:
    if f"[{group}]" not in (distribution.read_text("entry_points.txt") or ""):
        return []  # a cheap look first: parsing every METADATA costs more than the rest
    name = distribution.metadata["Name"]
    key = re.sub(r"[-_.]+", "-", name).lower()  # PEP 503
    if key in seen:
        return []
    seen.add(key)
    first = _first_on_path(distribution, name)
    return [
        EntryPointRecord(point.name, group, point.value, name, first.version)
        for point in first.entry_points
        if point.group == group
    ]


def _first_on_path(distribution: Distribution, name: str) -> Distribution:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import distribution as find

    try:
        return find(name)
    except PackageNotFoundError:  # its folder is not called what its metadata says
        return distribution


def _label(distribution: Distribution) -> str:
    try:
        name = distribution.metadata["Name"]
    except Exception:  # noqa: BLE001 - a label is wanted most when the metadata is broken
        name = None
    return name or f"a distribution without a name in {distribution.locate_file('')}"


PREFERENCE = ("metal", "mlx_cuda", "rocm", "openvino", "encoder", "llama_cpp", "mlx_cpu", "mlx_lm")
"""Order of preference for the default backend; any other comes after these."""

_EXTRAS = {
    "metal": "mlx",
    "mlx_cpu": "mlx",
    "mlx_cuda": "mlx-cuda",
    "mlx_lm": "mlx-lm",
    "openvino": "openvino",
    "encoder": "openvino",
    "llama_cpp": "llama-cpp",
    "rocm": "llama-cpp",
    "remote": "remote",
}
_FAMILIES = {"mlx": ("mlx_cpu", "metal", "mlx_cuda")}  # names for several backends


def rank(name: str) -> tuple[int, str]:
    """Return a sort key: the known ones in order of preference, then the others by name."""
    return (PREFERENCE.index(name) if name in PREFERENCE else len(PREFERENCE), name)


def release(version: str, parts: int) -> tuple[int, ...]:
    """Return the first numbers of a distribution's version, to compare: (0, 3) of 0.3.36+cpu."""
    numbers = version.partition("+")[0].split(".")[:parts]
    return tuple(int(number) for number in numbers if number.isdigit())


def install_command(extra: str, options: str = "") -> str:
    """Return the command that installs an extra of core, for all messages.

    ``make dist`` writes the file, whose lines are the addresses of wheels: nothing of core is on a
    package index yet, and a stranger could take its names there.
    """
    note = "DIST: the folder that `make dist` fills"
    if extra.startswith("mlx-cuda"):  # the two builds of MLX own the same files
        note += "; in an environment without core[mlx]"
    command = " ".join(filter(None, ("pip install", options, f"-r DIST/{extra}.txt")))
    return f"{command} ({note})"


def pip_command(name: str) -> str:
    """Return the command that installs a known backend.

    Empty for any other name, and for a backend that cannot run on this machine.
    """
    extra = _EXTRAS.get(name)
    return install_command(extra) if extra and not needed_machine(name) else ""


def needed_machine(name: str) -> str:
    """Return the machine that a known backend requires; empty if this one may be enough."""
    if name == "metal" and (sys.platform, platform.machine()) != ("darwin", "arm64"):
        return "a Mac with Apple silicon"
    if name == "mlx_cuda" and sys.platform != "linux":
        return "Linux with an NVIDIA GPU"
    return ""


def how_to_read(formats: Collection[str], installed: Collection[str]) -> str:
    """Return the command to install, or to run, for a model in one of these formats.

    Empty if the backend is ``installed``, because the reason why it cannot run is reported
    elsewhere, and for a format that no known backend reads.
    """
    by_format = {"safetensors": "mlx_cpu", "http": "remote", "gguf": "llama_cpp"}
    wanted = next((by_format[form] for form in formats if form in by_format), "")
    if not wanted or wanted in installed:
        return ""
    advice = f"To load {' or '.join(formats)}, install a backend: {pip_command(wanted)}"
    if wanted == "llama_cpp" and "mlx_cpu" in installed:
        advice += "; or convert the model for MLX: infer-cli convert MODEL.gguf OUT_DIR"
    return f"{advice}."


def unknown_backend(
    name: str, installed: Sequence[str], failures: Sequence[EntryPointFailure]
) -> str:
    """Return the message for a name that no installed distribution registers."""
    parts = [f"Unknown backend {name!r}."]
    near = _near(name, installed)
    wanted = near[0] if near else ""
    if wanted and wanted != name:
        parts.append(f"Did you mean {' or '.join(map(repr, near))}?")

    # A known backend that is not installed: why it cannot run here, or how to install it.
    if wanted not in installed and needed_machine(wanted):
        parts.append(f"{wanted!r} requires {needed_machine(wanted)}.")
    elif wanted not in installed and pip_command(wanted):
        parts.append(f"Install {wanted!r} with: {pip_command(wanted)}.")

    parts.append(f"Installed backends: {', '.join(installed) or 'none'}.")
    if not installed and not pip_command(wanted):
        parts.append(f"Install one with: {pip_command('mlx_cpu')}.")
    parts += [f"Cannot read {f.distribution}: {described(f.error)}." for f in failures]
    return " ".join(parts)


def _near(name: str, installed: Sequence[str]) -> Sequence[str]:
    """Return the names that ``name`` may mean, the likeliest first."""
    if name in _FAMILIES:
        return [member for member in _FAMILIES[name] if not needed_machine(member)]
    return difflib.get_close_matches(name, [*installed, *_EXTRAS], n=1)
