"""The program ``infer-cli``, which names the module that hides the package ``core``."""

from __future__ import annotations

import sys

from core_hidden import check_import


def main() -> None:
    """Run ``infer-cli``; exit with 1 if another module hides the package ``core``."""
    try:
        check_import()
    except ImportError as error:
        sys.exit(f"Error: {error}")
    from core.__main__ import main as run

    run()
