"""What `core` knows of backends that may not be installed: their order, and how to get them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from core.entry_points import EntryPointFailure

PREFERENCE = ("metal", "mlx_cuda", "rocm", "llama_cpp", "mlx_cpu", "mlx_lm")
"""The order in which a default backend is looked for; any other comes after these."""

_EXTRAS = {
    "metal": "mlx",
    "mlx_cpu": "mlx",
    "mlx_cuda": "mlx-cuda",
    "mlx_lm": "mlx-lm",
    "llama_cpp": "llama-cpp",
    "rocm": "llama-cpp",
}
_FAMILIES = {"mlx": ("mlx_cpu", "metal", "mlx_cuda")}  # names that stand for several backends


def rank(name: str) -> tuple[int, str]:
    """A sort key: the known ones in order of preference, then the others by name."""
    return (PREFERENCE.index(name) if name in PREFERENCE else len(PREFERENCE), name)


def pip_command(name: str) -> str:
    """The command that installs a known backend; empty for any other name."""
    extra = _EXTRAS.get(name)
    return f"pip install 'core[{extra}]'" if extra else ""  # quoted: zsh globs brackets


def how_to_read(formats: Collection[str]) -> str:
    """What to install, or to run, to use a model stored in one of these formats."""
    if "safetensors" in formats:
        return f"install one that does: {pip_command('mlx_cpu')}"
    return (
        f"install one that does: {pip_command('llama_cpp')}; or convert the model for the MLX "
        f"backends of 'core[mlx]': infer-cli convert MODEL.gguf OUT_DIR"
    )


def unknown_backend(
    name: str, installed: Sequence[str], failures: Sequence[EntryPointFailure]
) -> str:
    """The message for a name that no installed distribution registers."""
    parts = [f"No installed backend is called {name!r}."]
    near = _near(name, installed)
    wanted = near[0] if near else ""
    if wanted and wanted != name:
        parts.append(f"Did you mean {' or '.join(map(repr, near))}?")
    if wanted not in installed and pip_command(wanted):
        parts.append(f"{wanted!r} comes with: {pip_command(wanted)}.")
    parts.append(f"Installed: {', '.join(installed) or 'none'}.")
    if not wanted and not installed:
        parts.append(f"Install one: {pip_command('mlx_cpu')}.")
    parts += [f"{f.distribution} could not be read: {_described(f.error)}." for f in failures]
    return " ".join(parts)


def _near(name: str, installed: Sequence[str]) -> Sequence[str]:
    """The names that ``name`` may stand for, the likeliest first."""
    if name in _FAMILIES:
        return _FAMILIES[name]
    return difflib.get_close_matches(name, [*installed, *_EXTRAS], n=1)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
