"""``python -m core`` is ``infer-cli``."""

from core.cli import main

main()
