"""``infer-cli`` and ``python -m core``: the command line, if it is installed."""

from __future__ import annotations

import sys


def main() -> None:
    """Run ``infer-cli``; if it is missing, exit with 1 and print the install command.

    ``--version`` needs no command line.
    """
    try:
        from core_cli import main as run
    except ModuleNotFoundError as error:
        if error.name != "core_cli":
            raise
        _run_without()
    else:
        run()


def _run_without() -> None:
    if sys.argv[1:] == ["--version"]:
        from core import __version__

        sys.stdout.write(f"core, version {__version__}\n")
        return
    from core.plugins import install_command

    sys.exit(f"Error: infer-cli is not installed. Install it with: {install_command('cli')}")


if __name__ == "__main__":
    main()
