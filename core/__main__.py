"""``infer-cli`` and ``python -m core``: the command line, if it is installed."""

from __future__ import annotations

import sys


def main() -> None:
    """Run ``infer-cli``; if it is missing, exit with 1 and print the install command."""
    try:
        from core_cli import main as run
    except ModuleNotFoundError as error:
        if error.name != "core_cli":
            raise
        from core.plugins import install_command

        sys.exit(f"Error: infer-cli is not installed. Install it with: {install_command('cli')}")
    run()


if __name__ == "__main__":
    main()
