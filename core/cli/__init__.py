"""``infer-cli``, the command line. The only part of core that needs packages (extra ``cli``)."""

from __future__ import annotations

import sys

_NEEDED = ("click", "pluggy", "rich", "msgspec")


def main() -> None:
    """Run ``infer-cli``. Without the packages of the extra ``cli``: say so and exit with 1."""
    missing = _missing()
    if missing:
        sys.stderr.write(
            f"Error: infer-cli needs {', '.join(missing)}, which is not installed. "
            "Install it with: pip install 'core[cli]'\n"
        )
        sys.exit(1)
    try:
        from core.cli.app import run

        run()
    except KeyboardInterrupt:  # before or after the part in which the app catches it
        sys.exit(130)


def _missing() -> list[str]:
    from importlib.util import find_spec

    return [name for name in _NEEDED if find_spec(name) is None]
