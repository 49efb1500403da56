"""``infer-cli``, the command line. The only part of core that needs packages (extra ``cli``)."""

from __future__ import annotations

import os
import sys

_NEEDED = ("click", "msgspec", "pluggy", "prompt_toolkit", "rich")


def main() -> None:
    """Run ``infer-cli``. Exit with 1 if packages of the extra ``cli`` are missing."""
    missing = _missing()
    if missing:
        from core.plugins import install_command

        what = f"infer-cli requires {', '.join(missing)}, not installed here."
        sys.exit(f"Error: {what} Install it with: {install_command('cli')}")
    # llama.cpp's threads would spin while they wait. OpenMP reads this when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from core_cli.app import run

        run()
    except KeyboardInterrupt:  # before or after the part in which the app catches it
        sys.exit(130)


def _missing() -> list[str]:
    from importlib.util import find_spec

    return [name for name in _NEEDED if find_spec(name) is None]
