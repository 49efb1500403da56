"""How many frames and files a call passes before it computes: no more than it did."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "way.py"
MOST_FRAMES, MOST_FILES = 16, 31  # the last finds what is kept of earlier calls


def test_classify_goes_no_further_than_it_did(tiny_gguf: Callable[..., Path]) -> None:
    """See the tool for what is counted."""
    command = [sys.executable, str(TOOL), str(tiny_gguf())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    header, row = done.stdout.split("\n\n")[0].splitlines()
    backend, operation, frames, files = row.split()
    assert (header.split(), backend, operation) == (["frames", "files"], "llama_cpp", "classify")
    assert 0 < int(frames) <= MOST_FRAMES, done.stdout
    assert 0 < int(files) <= MOST_FILES, done.stdout
