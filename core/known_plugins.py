"""What `core` knows of backends that may not be installed: their order, and how to get them."""

from __future__ import annotations

import difflib
import platform
import sys
from collections.abc import Collection, Sequence

from core.entry_points import EntryPointFailure
from core.errors import described

PREFERENCE = ("metal", "mlx_cuda", "rocm", "llama_cpp", "mlx_cpu", "mlx_lm")
"""The order in which a default backend is looked for; any other comes after these."""

_EXTRAS = {
    "metal": "mlx",
    "mlx_cpu": "mlx",
    "mlx_cuda": "mlx-cuda",
    "mlx_lm": "mlx-lm",
    "llama_cpp": "llama-cpp",
    "rocm": "llama-cpp",
    "remote": "remote",
}
_FAMILIES = {"mlx": ("mlx_cpu", "metal", "mlx_cuda")}  # names that stand for several backends


def rank(name: str) -> tuple[int, str]:
    """A sort key: the known ones in order of preference, then the others by name."""
    return (PREFERENCE.index(name) if name in PREFERENCE else len(PREFERENCE), name)


def install_command(extra: str, options: str = "") -> str:
    """Return the command that installs an extra of core, in the same words everywhere.

    ``make dist`` writes the file, whose lines are the addresses of wheels: nothing of core is on a
    package index yet, and a stranger could take its names there.
    """
    note = "DIST: the folder that `make dist` fills"
    if extra.startswith("mlx-cuda"):  # the two builds of MLX own the same files
        note += "; in an environment without core[mlx]"
    command = " ".join(filter(None, ("pip install", options, f"-r DIST/{extra}.txt")))
    return f"{command} ({note})"


def pip_command(name: str) -> str:
    """How to install a known backend; empty for any other name, and where it could not run."""
    extra = _EXTRAS.get(name)
    return install_command(extra) if extra and not needed_machine(name) else ""


def needed_machine(name: str) -> str:
    """The machine that a known backend needs and this one is not; empty where it may run."""
    if name == "metal" and (sys.platform, platform.machine()) != ("darwin", "arm64"):
        return "a Mac with Apple silicon"
    if name == "mlx_cuda" and sys.platform != "linux":
        return "Linux with an NVIDIA GPU"
    return ""


def how_to_read(formats: Collection[str], installed: Collection[str]) -> str:
    """What to install, or to run, to use a model stored in one of these formats.

    Empty where that is ``installed``, for what keeps it from running is told otherwise, and for a
    format that nothing known reads.
    """
    by_format = {"safetensors": "mlx_cpu", "http": "remote", "gguf": "llama_cpp"}
    wanted = next((by_format[each] for each in formats if each in by_format), "")
    if not wanted or wanted in installed:
        return ""
    advice = f"For {' or '.join(formats)}, install a backend: {pip_command(wanted)}"
    if wanted == "llama_cpp" and "mlx_cpu" in installed:
        advice += "; or convert the model for MLX: infer-cli convert MODEL.gguf OUT_DIR"
    return f"{advice}."


def unknown_backend(
    name: str, installed: Sequence[str], failures: Sequence[EntryPointFailure]
) -> str:
    """The message for a name that no installed distribution registers."""
    parts = [f"No installed backend is called {name!r}."]
    near = _near(name, installed)
    wanted = near[0] if near else ""
    if wanted and wanted != name:
        parts.append(f"Did you mean {' or '.join(map(repr, near))}?")

    # What is known and missing: why it cannot be had here, or how to get it.
    if wanted not in installed and needed_machine(wanted):
        parts.append(f"{wanted!r} needs {needed_machine(wanted)}, which this machine is not.")
    elif wanted not in installed and pip_command(wanted):
        parts.append(f"{wanted!r} comes with: {pip_command(wanted)}.")

    parts.append(f"Installed: {', '.join(installed) or 'none'}.")
    if not installed and not pip_command(wanted):
        parts.append(f"Install one: {pip_command('mlx_cpu')}.")
    parts += [f"{f.distribution} could not be read: {described(f.error)}." for f in failures]
    return " ".join(parts)


def _near(name: str, installed: Sequence[str]) -> Sequence[str]:
    """The names that ``name`` may stand for, the likeliest first."""
    if name in _FAMILIES:
        return [member for member in _FAMILIES[name] if not needed_machine(member)]
    return difflib.get_close_matches(name, [*installed, *_EXTRAS], n=1)
